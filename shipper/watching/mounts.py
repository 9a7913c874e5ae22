"""Which file systems tell of changes: judged by the kernel's table of mounts. Decides; reads nothing."""

__all__ = ["silent_devices"]

# another machine, or the host of a virtual one, may write to these without this kernel hearing of it
_SILENT = {
    *("nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "9p", "virtiofs"),
    *("ceph", "glusterfs", "lustre", "gfs2", "ocfs2", "gpfs", "beegfs", "orangefs", "pvfs2"),
    *("vboxsf", "vmhgfs", "prl_fs", "fuse"),
}


def silent_devices(mountinfo: str) -> frozenset[str]:
    """Return the devices, as `major:minor`, of file systems whose changes inotify may not hear of.

    `mountinfo` is the text of /proc/self/mountinfo (proc(5)): the device is the third field, and the type the first
    behind a lone `-`.
    """
    silent = set()
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields, kind = before.split(), after.partition(" ")[0]
        if separator and len(fields) > 2 and (kind in _SILENT or kind.startswith("fuse.")):
            silent.add(fields[2])
    return frozenset(silent)
