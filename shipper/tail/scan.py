"""Scans directories: which files the patterns show, and which rotated siblings lie beside them.

Blocks, so it runs in a thread; reads no file and remembers nothing.
"""

import errno
import os
import stat
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.paths import (
    Packing,
    Selection,
    group_of,
    has_magic,
    is_compressed,
    live_names,
    packing_of,
    pattern_of,
    unpacked,
)

__all__ = ["FileEntry", "FileKey", "Packed", "Scan", "Walk", "scan", "stirred"]


@dataclass(frozen=True, slots=True, order=True)
class FileKey:
    """Device and inode: names a file for as long as it exists or is open, and no longer."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Packed:
    """How a file is compressed, and its bytes on disk; they and its time of change tell whether it changed."""

    packing: Packing
    stored: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A regular file at a path.

    `group` is the live path that it belongs to: its own, or that of the file which it was rotated from. `wanted` says
    that a pattern shows it; the others are only rotated siblings of one that is. `real` is the path behind a symbolic
    link. `modified` is in nanoseconds since the epoch. Of a compressed file `size` is that of its content once it was
    glimpsed at, as far as it is known.
    """

    path: str
    real: str
    group: str
    key: FileKey
    size: int
    modified: int
    wanted: bool
    packed: Packed | None = None

    @property
    def is_live(self) -> bool:
        """Whether it stands where its writer writes, rather than being a rotated sibling."""
        return self.path == self.group

    def differs(self, before: "FileEntry") -> bool:
        """Whether it may be another file or have other bytes than before; a compressed one may be renamed freely."""
        if self.packed is not None:
            return (self.packed, self.modified) != (before.packed, before.modified)
        return self != before


@dataclass(frozen=True, slots=True)
class Scan:
    """All that one look showed; `folders` are those that changes are to be watched in.

    `groups` are the live paths whose siblings were looked for, `siblings` these by path, with the inodes that their
    folders tell, sighted or not.
    """

    entries: tuple[FileEntry, ...]
    troubles: tuple[Notice, ...]
    folders: tuple[str, ...]
    groups: Set[str] = frozenset()
    siblings: Mapping[str, int] = field(default_factory=dict)


_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""A folder that could not be listed for one of these is not empty: the walk is worth nothing."""

_every = pattern_of("*").fullmatch


class Walk:
    """One walk: `folders` are those whose names were of interest, be they there or not, each listed once.

    `troubles` are the folders that may not be listed. Raises OSError where the system is short of descriptors or memory.
    """

    def __init__(self, excludes: Callable[[str], bool]) -> None:
        """Begin a walk that neither shows nor enters what `excludes` says of."""
        self.folders: dict[str, None] = {}
        self.troubles: list[Notice] = []
        self._excludes = excludes
        self._listed: dict[str, list[os.DirEntry[str]]] = {}

    def expand(self, pattern: str) -> list[str]:
        """Return the paths that an absolute pattern shows, in order; a plain one always, be it there or not.

        `**` enters no hidden folder, and none through a symbolic link, so that links cannot lead it in circles; a
        folder that `*` or its name leads to may be a link.
        """
        *parts, name = pattern.split("/")[1:]
        at: Iterable[str] = [""]
        for part in parts:
            at = dict.fromkeys(path for folder in at for path in self._enter(folder, part))
        if name == "**":
            at = dict.fromkeys(path for folder in at for path in self._tree(folder))
        self.folders.update(dict.fromkeys(folder or "/" for folder in at))
        shown = [path for folder in at for path in self._names(folder, name)]
        if not has_magic(pattern):
            shown = [pattern]
        return sorted(path for path in shown if not self._excludes(path))

    def entries(self, folder: str) -> Sequence[os.DirEntry[str]]:
        """Return what is in a folder; nothing where it is not there, or may not be listed, which is a trouble."""
        found = self._listed.get(folder)
        if found is None:
            found = self._listed[folder] = []
            try:
                with os.scandir(folder or "/") as entries:
                    found += entries
            except PermissionError:
                text = "folder may not be listed"
                self.troubles.append(Notice(NoticeKind.UNREADABLE, folder, text))
            except OSError as error:
                if error.errno in _SHORT:
                    raise
                pass  # that's fine: it may appear later, and a plain path in it is said to be missing
        return found

    def _enter(self, folder: str, part: str) -> list[str]:
        if part == "**":
            found = self._tree(folder)
            self.folders.update(dict.fromkeys(path or "/" for path in found))
            return found
        if not has_magic(part):
            return [f"{folder}/{part}"]
        self.folders.setdefault(folder or "/")
        matches = pattern_of(part).fullmatch
        inside = (e for e in self.entries(folder) if matches(e.name) and _leads_on(e, links=True))
        paths = (f"{folder}/{entry.name}" for entry in inside)
        return [path for path in paths if not self._excludes(path)]

    def _tree(self, folder: str) -> list[str]:
        found = [folder]
        for above in found:
            inside = (
                e for e in self.entries(above) if _every(e.name) and _leads_on(e, links=False)
            )
            paths = (f"{above}/{entry.name}" for entry in inside)
            found += [path for path in paths if not self._excludes(path)]
        return found

    def _names(self, folder: str, name: str) -> list[str]:
        if has_magic(name):
            matches = _every if name == "**" else pattern_of(name).fullmatch
            return [f"{folder}/{e.name}" for e in self.entries(folder) if matches(e.name)]
        path = f"{folder}/{name}"
        return [path] if os.path.lexists(path) else []


def _leads_on(entry: os.DirEntry[str], *, links: bool) -> bool:
    with suppress(OSError):  # a link that leads nowhere, or in circles
        return entry.is_dir(follow_symlinks=links)
    return False


_SPECIAL = {
    stat.S_IFIFO: "is a named pipe, not a file",
    stat.S_IFSOCK: "is a socket, not a file",
    stat.S_IFCHR: "is a device, not a file",
    stat.S_IFBLK: "is a device, not a file",
}


def scan(selection: Selection, lives: Iterable[str]) -> Scan:
    """Return what the selection shows now, with the rotated siblings of `lives`, each path once.

    `lives` are the paths that have been followed so far, so that a file which was rotated
    away and not written anew still has its group.
    """
    walk = Walk(selection.excludes)
    found = {pattern: walk.expand(pattern) for pattern in selection.patterns}
    shown = dict.fromkeys(path for paths in found.values() for path in paths)
    wanted = {path: None for path in shown if not _is_left_out(path, selection)}
    groups = {*lives, *wanted}
    folders = dict.fromkeys(os.path.dirname(path) for path in (*wanted, *groups))  # noqa: PTH120 - 10,000 of them
    siblings = _siblings(walk, folders, groups, selection)
    paths = {**wanted, **dict.fromkeys(siblings)}
    seen: list[FileEntry] = []
    troubles = [_nothing(pattern) for pattern, paths in found.items() if not paths]
    for path in paths:
        if _is_beside_original(path, paths, groups):
            if not os.path.lexists(unpacked(path)):
                siblings.pop(path, None)  # it stands alone by now, and was not seen
            continue
        match _see(path, group_of(path, groups), path in wanted):
            case FileEntry() as entry:
                # a link to a file that is shown itself is that file, also while its own name is not there yet
                if entry.real == path or entry.real not in wanted:
                    seen.append(entry)
            case Notice() as trouble if path in found or trouble.kind is not NoticeKind.MISSING:
                troubles.append(trouble)
            case _:
                pass  # a folder that a glob shows, a sibling that has just gone
    links = {os.path.dirname(s.real): None for s in seen if s.real != s.path}  # noqa: PTH120 - see above
    watched = _watchable({**walk.folders, **folders, **links})
    return Scan(tuple(seen), (*troubles, *walk.troubles), watched, groups, siblings)


def stirred(shown: Scan, groups: Collection[str], selection: Selection) -> set[str]:
    """Return which of these groups have a sibling now that the scan did not see, or saw the name of but not the file.

    It came, or was renamed, while or after the folders were listed. Raises OSError as `scan` does.
    """
    walk = Walk(selection.excludes)
    folders = dict.fromkeys(os.path.dirname(group) for group in groups)  # noqa: PTH120 - see above
    sighted = {entry.key.inode for entry in shown.entries}
    found = _siblings(walk, folders, shown.groups, selection).items()
    moved = (p for p, i in found if i not in sighted and shown.siblings.get(p) != i)
    return {group_of(path, shown.groups) for path in moved}.intersection(groups)


def _is_beside_original(path: str, paths: Container[str], groups: Collection[str]) -> bool:
    # as long as that stands there, it is read; a live path is written anew by another file
    original = unpacked(path)
    return original != path and original in paths and original != group_of(path, groups)


def _is_left_out(path: str, selection: Selection) -> bool:
    # what was rotated away from a file that is left out is left out as well
    if not selection.excluded:
        return False
    folder, _, name = path.rpartition("/")
    return any(selection.excludes(f"{folder}/{live}") for live in (name, *live_names(name)))


def _nothing(pattern: str) -> Notice:
    return Notice(NoticeKind.MISSING, pattern, "matches no file yet")


def _siblings(
    walk: Walk, folders: Iterable[str], groups: Collection[str], selection: Selection
) -> dict[str, int]:
    entries = ((f"{folder}/{e.name}", e) for folder in folders for e in walk.entries(folder))
    found = {path: e.inode() for path, e in entries if live_names(e.name)}
    return {
        path: inode
        for path, inode in found.items()
        if group_of(path, groups) != path and not _is_left_out(path, selection)
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


def _see(path: str, group: str, wanted: bool) -> FileEntry | Notice | None:
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
    if is_compressed(path) and (packing is None or group == path):
        return Notice(NoticeKind.REFUSED, path, "is compressed") if wanted else None
    key = FileKey(status.st_dev, status.st_ino)
    packed = None if packing is None else Packed(packing, size)
    # a glob may show the archives of years: what was compressed is followed as what was rotated is, never for itself
    wanted = wanted and packed is None
    return FileEntry(path, real, group, key, size, status.st_mtime_ns, wanted, packed)
