"""Which file systems are told apart by the kernel's table of mounts."""

from shipper.tail.watcher import silent_devices

TABLE = """\
25 30 0:23 / /sys rw,nosuid shared:7 - sysfs sysfs rw
30 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
90 30 0:50 / /var/log/nfs rw,relatime shared:9 master:2 - nfs4 server:/logs rw,vers=4.2
91 30 0:51 / /mnt/with\\040space rw - cifs //server/logs rw
92 30 0:52 /folder /mnt/sshfs rw,user_id=0 - fuse.sshfs me@server: rw
93 30 0:53 / /var/lib/docker/overlay2/merged rw - overlay overlay rw,lowerdir=a
94 30 0:54 / /tmp rw - tmpfs tmpfs rw
95 30 0:55 / /mnt/ntfs rw - fuseblk /dev/sdb1 rw
"""


def test_network_and_user_space_file_systems_are_silent_and_local_ones_are_not() -> None:
    assert silent_devices(TABLE) == {"0:50", "0:51", "0:52"}


def test_lines_that_are_no_mounts_are_passed_over() -> None:
    assert silent_devices("") == frozenset()
    assert silent_devices("nonsense\n - nfs\n1 2 - nfs x\n") == frozenset()
