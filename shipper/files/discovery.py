"""Looks at the folders: which files do the patterns show, and which rotated siblings stand beside them.

Blocks, so it runs in a thread; reads no file and remembers nothing.
"""

import os
import stat
from collections.abc import Collection, Container, Iterable
from pathlib import Path

from shipper.files.families import family_of
from shipper.files.packing import packing_of, unpacked
from shipper.files.rotation import is_compressed, live_names
from shipper.files.selection import Selection
from shipper.files.sighting import FileKey, Packed, Scan, Sighting
from shipper.files.walk import Walk
from shipper.notice import Notice, NoticeKind

__all__ = ["scan", "stirred"]

_SPECIAL = {
    stat.S_IFIFO: "is a named pipe, not a file",
    stat.S_IFSOCK: "is a socket, not a file",
    stat.S_IFCHR: "is a device, not a file",
    stat.S_IFBLK: "is a device, not a file",
}


def scan(selection: Selection, lives: Iterable[str]) -> Scan:
    """Return what the selection shows now, with the rotated siblings of `lives`, each path once.

    `lives` are the paths that have been followed so far, so that a file which was rotated
    away and not written anew still has its family.
    """
    walk = Walk(selection.excludes)
    found = {pattern: walk.expand(pattern) for pattern in selection.patterns}
    shown = dict.fromkeys(path for paths in found.values() for path in paths)
    wanted = {path: None for path in shown if not _is_left_out(path, selection)}
    families = {*lives, *wanted}
    folders = dict.fromkeys(os.path.dirname(path) for path in (*wanted, *families))  # noqa: PTH120 - 10,000 of them
    siblings = _siblings(walk, folders, families, selection)
    paths = {**wanted, **dict.fromkeys(siblings)}
    seen: list[Sighting] = []
    troubles = [_nothing(pattern) for pattern, paths in found.items() if not paths]
    for path in paths:
        if _is_beside_original(path, paths, families):
            if not os.path.lexists(unpacked(path)):
                siblings.pop(path, None)  # it stands alone by now, and was not seen
            continue
        match _see(path, family_of(path, families), path in wanted):
            case Sighting() as sighting:
                # a link to a file that is shown itself is that file, also while its own name is not there yet
                if sighting.real == path or sighting.real not in wanted:
                    seen.append(sighting)
            case Notice() as trouble if path in found or trouble.kind is not NoticeKind.MISSING:
                troubles.append(trouble)
            case _:
                pass  # a folder that a glob shows, a sibling that has just gone
    links = {os.path.dirname(s.real): None for s in seen if s.real != s.path}  # noqa: PTH120 - see above
    watched = _watchable({**walk.folders, **folders, **links})
    return Scan(tuple(seen), (*troubles, *walk.troubles), watched, families, siblings)


def stirred(shown: Scan, families: Collection[str], selection: Selection) -> set[str]:
    """Return which of these families have a sibling now that the scan did not see, or saw the name of but not the file.

    It came, or was renamed, while or after the folders were listed. Raises OSError as `scan` does.
    """
    walk = Walk(selection.excludes)
    folders = dict.fromkeys(os.path.dirname(family) for family in families)  # noqa: PTH120 - see above
    sighted = {sighting.key.inode for sighting in shown.sightings}
    found = _siblings(walk, folders, shown.families, selection).items()
    moved = (p for p, i in found if i not in sighted and shown.siblings.get(p) != i)
    return {family_of(path, shown.families) for path in moved}.intersection(families)


def _is_beside_original(path: str, paths: Container[str], families: Collection[str]) -> bool:
    # as long as that stands there, it is read; a live path is written anew by another file
    original = unpacked(path)
    return original != path and original in paths and original != family_of(path, families)


def _is_left_out(path: str, selection: Selection) -> bool:
    # what was rotated away from a file that is left out is left out as well
    if not selection.excluded:
        return False
    folder, _, name = path.rpartition("/")
    return any(selection.excludes(f"{folder}/{live}") for live in (name, *live_names(name)))


def _nothing(pattern: str) -> Notice:
    return Notice(NoticeKind.MISSING, pattern, "matches no file yet")


def _siblings(
    walk: Walk, folders: Iterable[str], families: Collection[str], selection: Selection
) -> dict[str, int]:
    entries = ((f"{folder}/{e.name}", e) for folder in folders for e in walk.entries(folder))
    found = {path: e.inode() for path, e in entries if live_names(e.name)}
    return {
        path: inode
        for path, inode in found.items()
        if family_of(path, families) != path and not _is_left_out(path, selection)
    }


def _watchable(folders: Iterable[str]) -> tuple[str, ...]:
    # one that is not there will appear in the nearest that is; one that is replaced is so in its parent
    found: dict[str, None] = {}
    for folder in folders:
        there = folder
        while there != "/" and not os.path.isdir(there):  # noqa: PTH112 - see above
            there = os.path.dirname(there)  # noqa: PTH120 - see above
        found[there] = found[os.path.dirname(there)] = None  # noqa: PTH120 - see above
    return tuple(found)


def _absence(path: str) -> str:
    if os.path.islink(path):  # noqa: PTH114 - a path of any bytes
        return "is a link that leads nowhere yet"
    if not os.path.isdir(os.path.dirname(path)):  # noqa: PTH112, PTH120 - a path of any bytes
        return "is not there yet, and neither is its folder"
    return "is not there yet"


def _see(path: str, family: str, wanted: bool) -> Sighting | Notice | None:
    try:
        status = os.lstat(path)
        real = path
        if stat.S_ISLNK(status.st_mode):
            real = os.path.realpath(path)
            status = Path(path).stat()
    except PermissionError:
        return Notice(NoticeKind.UNREADABLE, path, "may not be seen: its folder is closed to us")
    except OSError:
        return Notice(NoticeKind.MISSING, path, _absence(path))
    if stat.S_ISDIR(status.st_mode):
        return Notice(NoticeKind.MISSING, path, f"is a folder; name its files, as in {path}/*.log")
    if not stat.S_ISREG(status.st_mode):
        text = _SPECIAL.get(stat.S_IFMT(status.st_mode), "is not a regular file")
        return Notice(NoticeKind.REFUSED, path, text) if wanted else None
    size, packing = status.st_size, packing_of(path)
    if is_compressed(path) and (packing is None or family == path):
        return Notice(NoticeKind.REFUSED, path, "is compressed") if wanted else None
    key = FileKey(status.st_dev, status.st_ino)
    packed = None if packing is None else Packed(packing, size)
    # a glob may show the archives of years: what was compressed is followed as what was rotated is, never for itself
    wanted = wanted and packed is None
    return Sighting(path, real, family, key, size, status.st_mtime_ns, wanted, packed)
