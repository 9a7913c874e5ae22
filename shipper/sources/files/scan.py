"""Scans directories: which files the patterns show, which rotated siblings lie next to them, and what there is to say of them.

Blocks, so it runs in a thread; reads no file and remembers nothing.
"""

import errno
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from typing import NamedTuple

from shipper.sources.files import paths
from shipper.sources.files.entry import FileEntry, FileKey, UnreadableSibling
from shipper.sources.files.paths import Selection
from shipper.sources.files.refusals import Refusals
from shipper.sources.notices import Notice, NoticeKind


class Scan(NamedTuple):
    """All that one scan showed; `folders` are those that changes are to be watched in, `refused` those left out."""

    entries: Collection[FileEntry]
    troubles: Collection[Notice]
    folders: Sequence[str]
    archives: Sequence[UnreadableSibling] = ()
    refused: Collection[str] = ()

    def refuses(self, entry: FileEntry) -> bool:
        """Whether a file that was followed before is in a folder that is left out now."""
        return any(
            path.startswith(f"{folder}/")
            for folder in self.refused
            for path in (entry.path, entry.real)
        )


def scan(
    selection: Selection,
    lives: Mapping[str, str],
    sought: Callable[[Iterable[FileEntry]], Mapping[int, str]] = lambda _: {},
) -> Scan:
    """Return what the selection shows now, with the rotated siblings of `lives`, each path once.

    `lives` are the paths that have been followed so far, each with its group: a file that was
    rotated away and not written anew still has one. `sought` returns for what is shown which inodes
    are to be looked for nearby, each with the live path of its group. Raises OSError where the
    system is short of descriptors or memory.
    """
    lister = _Lister(selection)
    found = lister.shown(lives)
    wanted = dict.fromkeys(path for shown in found.values() for path in shown)
    homes = lister.homes({**lives, **{path: path for path in wanted}})
    folders = dict.fromkeys(map(os.path.dirname, homes))
    siblings = lister.siblings(folders, homes)
    closed = {notice.path for notice in lister.troubles}
    entries: dict[str, FileEntry] = {}
    archives: list[UnreadableSibling] = []
    for path in dict.fromkeys([*wanted, *siblings]):
        live = paths.group_of(path, homes)
        match _inspect(path, homes.get(live, live), path in wanted):
            case FileEntry() as seen:
                # a link to a file that is shown itself is that file, also where its own name came
                # behind the listing
                is_shown = seen.real != path and selection.shows(seen.real)
                is_own = not is_shown or os.path.dirname(seen.real) in closed  # noqa: PTH120
                if is_own and not lister.refuses(seen, found):
                    entries[path] = seen
            case UnreadableSibling() as seen:
                archives.append(seen)
            # a glob may show folders, and what is gone by now
            case Notice() as seen if path in found or seen.kind is not NoticeKind.MISSING:
                lister.troubles.append(seen)
    missing = (one for one, shown in found.items() if not shown and one not in lister.refused)
    lister.troubles += [
        Notice(NoticeKind.MISSING, pattern, "matches no file yet") for pattern in missing
    ]
    there = [entry for entry in entries.values() if not _is_with_original(entry, entries)]
    there += lister.search(sought(there), entries)
    watched = list(dict.fromkeys([*lister.folders, *folders]))
    return Scan(there, lister.troubles, watched, archives, lister.refused)


def _is_with_original(entry: FileEntry, entries: Collection[str]) -> bool:
    # as long as the original is there, it is read; a live path is written anew by another file
    original = paths.decompressed_name(entry.path)
    return entry.compression is not None and original in entries and original != entry.group


_MOST_PLACES = 200
"""Folders that the files of one live path are looked for in, beyond which they are not found."""

_WRITTEN_BY_US = (
    "is written by a receiver, a broker or a shipper, so its files are left out; "
    "to follow them, name the folder in --file, and ship to another broker"
)
_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""A folder that could not be listed for one of these is not empty: the scan is worth nothing."""


class _Lister:
    """Lists folders, each once, but for what is excluded.

    `folders` are those whose names were of interest and that are there, `troubles` those that may not be listed.
    `refused` are the folders, and the patterns, that are left out though they are shown (`refusals`).
    """

    def __init__(self, selection: Selection) -> None:
        self.folders: dict[str, None] = {}
        self.troubles: list[Notice] = []
        self._selection = selection
        self._listed: dict[str, list[os.DirEntry[str]]] = {}
        self._found_places: dict[tuple[str, ...], Sequence[str]] = {}
        self.refused: dict[str, None] = {}
        self._refusals = Refusals()
        self._meant: dict[str, frozenset[str]] = {}  # by pattern: marked folders that it begins in

    def shown(self, lives: Container[str]) -> dict[str, list[str]]:
        """Return the paths that each pattern shows; a path that exists is that path."""
        found: dict[str, list[str]] = {}
        for pattern in self._selection.patterns:
            if pattern in lives or os.path.lexists(pattern):
                self.folders[os.path.dirname(pattern)] = None  # noqa: PTH120 - a path of any bytes
                is_meant = self._begin(pattern, pattern)
                found[pattern] = self._without_excluded([pattern] if is_meant else [])
            else:
                found |= {one: self._expand_glob(one) for one in paths.expand_braces(pattern)}
        return found

    def _expand_glob(self, pattern: str) -> list[str]:
        """Return the paths that an absolute pattern shows, in order; a plain one always, be it there or not.

        `**` enters no hidden folder, and none through a symbolic link, so that links cannot lead it in circles; a
        folder that `*` or its name leads to may be a link.
        """
        begin = paths.fixed_part(pattern)
        if not self._begin(pattern, begin):
            return []
        meant = self._meant[pattern]
        folder = begin if paths.has_magic(pattern) else os.path.dirname(pattern)  # noqa: PTH120
        rest = pattern.removeprefix(folder).removeprefix("/").split("/")
        shown = set(self._expand(folder.removesuffix("/"), rest, meant))
        if not paths.has_magic(pattern):
            shown = {pattern}
        return self._without_excluded(shown)

    def _begin(self, pattern: str, begin: str) -> bool:
        """Note which marked folders a pattern begins in; return whether it may show anything."""
        if self._refusals.is_pseudo_path(begin):
            self._refuse(pattern, "is in a pseudo file system of the kernel, which holds no logs")
            return False
        self._meant[pattern] = frozenset(self._refusals.owners(begin))
        return True

    def _without_excluded(self, shown: Iterable[str]) -> list[str]:
        return sorted(path for path in shown if not self._selection.excludes_file(path))

    def homes(self, lives: Mapping[str, str]) -> Mapping[str, str]:
        """Return the live paths, and the files behind those that are links, each with its group."""
        folders = dict.fromkeys(map(os.path.dirname, lives))
        links = {
            f"{folder}/{entry.name}"
            for folder in folders
            for entry in self._list(folder)
            if entry.is_symlink()
        }
        found: dict[str, str] = {}
        for path, group in lives.items():
            if path in links and self._may_show(real := os.path.realpath(path)):
                found.setdefault(real, group)  # of several links to one file the first counts
        return {**found, **lives}

    def siblings(self, folders: Iterable[str], homes: Collection[str]) -> list[str]:
        """Return the files in these folders that were rotated away from the live paths `homes`."""
        return [
            path
            for folder in folders
            if not (self.refused and self._is_left_out(folder))
            for entry in self._list(folder)
            if paths.live_names(entry.name)
            and paths.group_of(path := f"{folder}/{entry.name}", homes) != path
            and not self._selection.excludes_file(path)
        ]

    def search(self, sought: Mapping[int, str], known: Container[str]) -> list[FileEntry]:
        """Return the files nearby that have a sought inode or a rotated name, each with its group.

        A folder that has rotated files of a group and no live one is where they are moved to.
        """
        found: list[FileEntry] = []
        for folder, groups in self._names_by_place(sought.values()).items():
            listed = self._list_quietly(folder) if self._may_show(folder) else ()
            there = {entry.name for entry in listed}
            for entry in listed:
                before = [one for one in paths.live_names(entry.name) if one in groups]
                group = sought.get(entry.inode(), "") or (groups[before[0]] if before else "")
                path = f"{folder}/{entry.name}"
                if not group or path in known or self._selection.excludes_file(path):
                    continue
                seen = _inspect(path, group, False)
                if isinstance(seen, FileEntry) and seen.real == path:
                    is_sibling = bool(before) and before[0] not in there
                    found.append(replace(seen, is_sought=not is_sibling))
        return found

    def _names_by_place(self, groups: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the folders to look in, each with the names of the groups whose files may be in it."""
        names = defaultdict[str, dict[str, str]](dict)
        above: dict[str, None] = {}
        for group in dict.fromkeys(groups):
            folder, _, name = group.rpartition("/")
            real = os.path.realpath(group).rpartition("/")[0]
            for place in self._places(folder, real):
                names[place][name] = group
            if real != folder:
                above[real.rpartition("/")[0]] = None
        # a link to a file may have led to a folder beside, whose rotated files are another's
        beside = chain.from_iterable(self._subfolders(one) for one in above if one)
        return {**{place: {} for place in islice(beside, _MOST_PLACES)}, **names}

    def _places(self, *homes: str) -> Sequence[str]:
        """Return the folders that a file of these folders may have been moved to.

        Those are they and their subfolders, and where a folder above them is a link, the same place
        beside the target of that.
        """
        if (found := self._found_places.get(homes)) is None:
            every = (place for home in dict.fromkeys(homes) for place in self._near(home))
            found = self._found_places[homes] = list(islice(every, _MOST_PLACES))
        return found

    def _near(self, folder: str) -> Iterator[str]:
        yield folder
        yield from self._subfolders(folder)
        above = folder
        while above:
            if os.path.islink(above):  # noqa: PTH114 - a path of any bytes
                rest = folder.removeprefix(above)
                beside = os.path.realpath(above).rpartition("/")[0]
                yield from (f"{other}{rest}" for other in self._subfolders(beside))
            above = above.rpartition("/")[0]

    def _subfolders(self, folder: str) -> list[str]:
        there = (one for one in self._list_quietly(folder) if _is_folder(one, links=False))
        found = (f"{folder}/{entry.name}" for entry in there)
        return [path for path in found if not self._refusals.is_marked(path)]

    def _list_quietly(self, folder: str) -> Sequence[os.DirEntry[str]]:
        count = len(self.troubles)
        found = self._list(folder)
        del self.troubles[count:]  # nobody asked for this folder
        return found

    def refuses(self, entry: FileEntry, found: Mapping[str, Collection[str]]) -> bool:
        """Whether a file is not followed that `found` has by pattern, for where it is behind a symbolic link."""
        if self._refusals.is_pseudo(entry.key.device, entry.path):
            self._refuse(entry.path, "is a file of the kernel, not a log")
            return True
        if entry.real == entry.path:
            return False
        owners = set(self._refusals.owners(entry.real))
        shown_by = [meant for one, meant in self._meant.items() if entry.path in found[one]]
        meant = frozenset[str]().union(*shown_by)
        for owner in owners - meant:
            self._refuse(owner, _WRITTEN_BY_US)
        return not owners <= meant

    def _may_enter(self, path: str, meant: Collection[str], *, is_listed: bool = False) -> bool:
        """Whether a pattern enters a folder that it shows, and then lists it, or does not.

        `meant` are the marked folders that the pattern begins in.
        """
        try:
            status = os.lstat(path)
            if is_link := stat.S_ISLNK(status.st_mode):
                status = os.stat(path)  # noqa: PTH116 - a path of any bytes
        except OSError:
            return True
        if self._refusals.is_pseudo(status.st_dev, path):
            return False
        if is_listed:
            self._list(path)
        if not (is_link or self._refusals.is_marked(path)):
            return True
        if is_refused := any(owner not in meant for owner in self._refusals.owners(path)):
            self._refuse(path, _WRITTEN_BY_US)
        return not is_refused

    def _is_left_out(self, folder: str) -> bool:
        left_out = self.refused.keys() - self._meant_by_any()
        return any(f"{folder}/".startswith(f"{one}/") for one in left_out)

    def _may_show(self, real: str) -> bool:
        return self._meant_by_any().issuperset(self._refusals.owners(real))

    def _meant_by_any(self) -> frozenset[str]:
        return frozenset[str]().union(*self._meant.values())

    def _refuse(self, path: str, text: str) -> None:
        self.refused[path] = None
        self.troubles.append(Notice(NoticeKind.REFUSED, path, text))

    def _expand(self, folder: str, parts: Sequence[str], meant: Collection[str]) -> Iterator[str]:
        name, rest = parts[0], parts[1:]
        if rest and not paths.has_magic(name):
            path = f"{folder}/{name}"
            if self._may_enter(path, meant):
                yield from self._expand(path, rest, meant)
            return
        self.folders[folder or "/"] = None
        if not (rest or paths.has_magic(name)):
            yield from filter(os.path.lexists, [f"{folder}/{name}"])
            return
        if is_deep := name == "**":
            yield from self._expand(folder, rest or ["*"], meant)
            name, rest = "*", parts
        matches = paths.pattern_of(name).fullmatch
        for entry in [entry for entry in self._list(folder) if matches(entry.name)]:
            path = f"{folder}/{entry.name}"
            if not rest:
                yield path
            elif (
                _is_folder(entry, links=not is_deep)
                and not self._selection.excludes(path)
                and self._may_enter(path, meant, is_listed=paths.has_magic(rest[0]))
            ):
                yield from self._expand(path, rest, meant)

    def _list(self, folder: str) -> Sequence[os.DirEntry[str]]:
        found = self._listed.get(folder)
        if found is None:
            found = self._listed[folder] = []
            try:
                with os.scandir(folder or "/") as entries:
                    found += entries
                self._refusals.note(folder, [entry.name for entry in found])
            except PermissionError:
                text = "folder may not be listed"
                self.troubles.append(Notice(NoticeKind.UNREADABLE, folder, text))
            except OSError as error:
                # it may appear later, and a plain path in it is said to be missing
                if error.errno in _SHORT:
                    raise
        return found


def _is_folder(entry: os.DirEntry[str], *, links: bool) -> bool:
    with suppress(OSError):  # a link that leads nowhere, or in circles
        return entry.is_dir(follow_symlinks=links)
    return False


def _inspect(path: str, group: str, wanted: bool) -> FileEntry | UnreadableSibling | Notice | None:
    try:
        status, real = os.lstat(path), path
        if stat.S_ISLNK(status.st_mode):
            status, real = os.stat(path), os.path.realpath(path)  # noqa: PTH116 - a path of any bytes
    except PermissionError:
        return Notice(NoticeKind.UNREADABLE, path, "may not be seen: its folder is closed to us")
    except OSError:
        return Notice(NoticeKind.MISSING, path, "is not there yet")
    if stat.S_ISDIR(status.st_mode):
        return Notice(NoticeKind.MISSING, path, f"is a folder; name its files, as in {path}/*.log")
    compression, is_file = paths.compression_of(path), stat.S_ISREG(status.st_mode)
    if not is_file or (path.endswith(paths.COMPRESSED) and (compression is None or group == path)):
        if wanted:
            refusal = "is compressed" if is_file else "is a pipe, a socket or a device, not a file"
            return Notice(NoticeKind.REFUSED, path, refusal)
        return (
            UnreadableSibling(path, group, status.st_size, status.st_mtime_ns) if is_file else None
        )
    # a glob may show the archives of years: what was compressed is followed as what was rotated is, never for itself
    wanted = wanted and compression is None
    key, modified = FileKey(status.st_dev, status.st_ino), status.st_mtime_ns
    return FileEntry(path, real, group, key, status.st_size, modified, wanted, compression)
