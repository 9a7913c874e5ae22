"""Looks at the folders: which files do the patterns show, and which rotated siblings stand beside them.

Blocks, so it runs in a thread; reads no file and remembers nothing.
"""

import glob
import os
import stat
from collections.abc import Collection, Container, Iterable
from pathlib import Path

from shipper.families import family_of
from shipper.notice import Notice, NoticeKind
from shipper.packing import packing_of, unpacked
from shipper.rotation import is_compressed, live_names
from shipper.selection import Selection
from shipper.sighting import FileKey, Packed, Scan, Sighting

__all__ = ["scan"]


def scan(selection: Selection, lives: Iterable[str]) -> Scan:
    """Return what the patterns show now, with the rotated siblings of `lives`, each file once.

    `lives` are the paths that have been followed so far, so that a file which was rotated
    away and not written anew still has its family.
    """
    patterns = selection.patterns
    found = {pattern: _expand(pattern) for pattern in patterns}
    wanted = dict.fromkeys(path for paths in found.values() for path in paths)
    families = {*lives, *wanted}
    folders = dict.fromkeys(os.path.dirname(path) for path in (*wanted, *families, *patterns))  # noqa: PTH120 - 10,000 of them
    seen: list[Sighting] = []
    troubles = [_nothing(pattern) for pattern, paths in found.items() if not paths]
    paths = {**wanted, **dict.fromkeys(_siblings(folders, families, troubles))}
    for path in paths:
        if _is_beside_original(path, paths, families):
            continue
        match _see(path, family_of(path, families), path in wanted):
            case Sighting() as sighting:
                seen.append(sighting)
            case Notice() as trouble if path in found or trouble.kind is not NoticeKind.MISSING:
                troubles.append(trouble)
            case _:
                pass  # a folder that a glob shows, a sibling that has just gone
    links = {os.path.dirname(s.real) for s in seen if s.real != s.path}  # noqa: PTH120 - see above
    watched = tuple(folder for folder in {**folders, **dict.fromkeys(links)} if "*" not in folder)
    return Scan(tuple(seen), tuple(troubles), watched)


def _is_beside_original(path: str, paths: Container[str], families: Collection[str]) -> bool:
    # as long as that stands there, it is read; a live path is written anew by another file
    original = unpacked(path)
    return original != path and original in paths and original != family_of(path, families)


def _expand(pattern: str) -> list[str]:
    # a plain path is always followed, so that it can be said to be missing
    return sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else [pattern]  # noqa: PTH207 - Path.glob hides what it cannot read and knows no absolute patterns


def _nothing(pattern: str) -> Notice:
    return Notice(NoticeKind.MISSING, pattern, "matches no file yet")


def _siblings(folders: Iterable[str], families: set[str], troubles: list[Notice]) -> list[str]:
    siblings = []
    for folder in folders:
        try:
            names = os.listdir(folder)  # noqa: PTH208 - names are enough
        except PermissionError:
            troubles.append(Notice(NoticeKind.UNREADABLE, folder, "folder may not be listed"))
            continue
        except OSError:
            continue  # the folder may appear later; a plain path in it is reported as missing
        siblings += [
            path
            for path in (f"{folder}/{name}" for name in names if live_names(name))
            if family_of(path, families) != path
        ]
    return siblings


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
        return Notice(NoticeKind.MISSING, path, "is not there yet")
    if stat.S_ISDIR(status.st_mode):
        return Notice(NoticeKind.MISSING, path, f"is a folder; name its files, as in {path}/*.log")
    if not stat.S_ISREG(status.st_mode):
        return Notice(NoticeKind.REFUSED, path, "is not a regular file") if wanted else None
    size, packing = status.st_size, packing_of(path)
    if is_compressed(path) and (packing is None or family == path):
        return Notice(NoticeKind.REFUSED, path, "is compressed") if wanted else None
    key = FileKey(status.st_dev, status.st_ino)
    packed = None if packing is None else Packed(packing, size)
    # a glob may show the archives of years: what was compressed is followed as what was rotated is, never for itself
    wanted = wanted and packed is None
    return Sighting(path, real, family, key, size, status.st_mtime_ns, wanted, packed)
