"""Lists folders: the paths that patterns show, rotated siblings, and files that were moved nearby.

Blocks, so it runs in a thread; a listing lasts as long as one scan.
"""

import ctypes
import errno
import os
import stat
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain, islice

from nats_logship.app.files import FOLDER_MARKS
from shipper.sources.files import paths
from shipper.sources.files.identity import FileEntry
from shipper.sources.files.paths import Selection
from shipper.sources.notices import Notice, NoticeKind

_MOST_FOLDERS = 200
"""Folders in which the files of one live path are looked for."""

_MOST_LINKS = 40
"""Symbolic links that the kernel follows in one path."""
_LONGEST = 4096
"""Characters of a path that the kernel may still take."""
_LINKS_KEPT = 1024
"""Answers about links that a listing keeps: most paths are in the same few folders."""

_WRITTEN_BY_US = (
    "is written by a receiver, a broker or a shipper, so its files are left out; "
    "to follow them, name the folder in --file, and ship to another broker"
)
_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors after which a folder that could not be listed must not be taken for an empty one."""


_PSEUDO = {
    *(0x9FA0, 0x62656572, 0x27E0EB, 0x63677270),  # proc, sysfs, cgroup, cgroup2
    *(0x64626720, 0x74726163, 0x73636673, 0x62656570),  # debugfs, tracefs, securityfs, configfs
    *(0xCAFE4A11, 0x6165676C, 0xF97CFF8C, 0xDE5E81E4),  # bpf, pstore, selinuxfs, efivarfs
    *(0x1CD1, 0x6E736673, 0x7655821, 0x43415D53),  # devpts, nsfs, resctrl, smackfs
    *(0x42494E4D, 0x65735543, 0x19800202),  # binfmt_misc, fusectl, mqueue
}
"""Types of file systems as in `statfs` (linux/magic.h)."""
_STATFS_BYTES = 1024
"""More than the size of `struct statfs`, whose first field is the type."""
_libc = ctypes.CDLL(None, use_errno=True)


class Refusals:
    """Recognises what is never followed, once for each folder and device.

    Those are pseudo file systems, and folders that our programs write to: a shipper that follows
    the files of a receiver ships its own lines again, without end. So a pattern from outside never
    enters such a folder. A pattern whose fixed part is within one may: a shipper can follow what
    was received from other hosts.
    """

    def __init__(self) -> None:
        self._pseudo: dict[int, bool] = {}
        self._marked: dict[str, bool] = {}

    def is_pseudo(self, device: int, path: str) -> bool:
        """Whether the file system of a device, which `path` is in, has no files on any disk."""
        if device not in self._pseudo:
            answer = ctypes.create_string_buffer(_STATFS_BYTES)
            failed = _libc.statfs(os.fsencode(path), answer)
            kind = ctypes.c_ulong.from_buffer(answer).value & 0xFFFFFFFF
            self._pseudo[device] = not failed and kind in _PSEUDO
        return self._pseudo[device]

    def is_pseudo_path(self, path: str) -> bool:
        """Whether a path exists and is in a pseudo file system."""
        with suppress(OSError):
            return self.is_pseudo(os.stat(path).st_dev, path)  # noqa: PTH116 - a path of any bytes
        return False

    def note(self, folder: str, names: Iterable[str]) -> None:
        """Note the names in a folder, so that its mark need not be looked up."""
        self._marked[folder] = any(name in FOLDER_MARKS for name in names)

    def is_marked(self, folder: str) -> bool:
        """Whether one of our programs writes to a folder, as a mark in it says."""
        if folder not in self._marked:
            names = (f"{folder}/{mark}" for mark in FOLDER_MARKS)
            self._marked[folder] = any(map(os.path.lexists, names))
        return self._marked[folder]

    def owners(self, real: str) -> Iterator[str]:
        """Yield the marked folders that a path is in, or is; it leads through no symbolic link."""
        while real != "/":
            if self.is_marked(real):
                yield real
            real = os.path.dirname(real)  # noqa: PTH120 - a path of any bytes


class Listing:
    """Lists folders, each once, but for what the selection excludes.

    `folders` are those to watch for changes, `troubles` those that may not be listed. `refused` are
    the folders and patterns that are left out although they are shown (`refusals`).
    """

    def __init__(self, selection: Selection) -> None:
        self.folders: dict[str, None] = {}
        self.troubles: list[Notice] = []
        self._selection = selection
        self._listed: dict[str, list[os.DirEntry[str]]] = {}
        self._near_folders: dict[tuple[str, ...], Sequence[str]] = {}
        self.refused: dict[str, None] = {}
        self._refusals = Refusals()
        self._real: dict[str, str] = {}
        self._read_link = lru_cache(maxsize=_LINKS_KEPT)(_read_link)
        self._allowed: dict[str, frozenset[str]] = {}  # marked folders that a pattern begins in

    def find_real(self, path: str) -> str:
        """Return the path behind all symbolic links; found once for each path."""
        if (real := self._real.get(path)) is None:
            real = self._real[path] = self._resolve(path)
        return real

    def _resolve(self, path: str) -> str:
        """Return the path behind all links; the path itself if there are too many, as in a circle.

        The kernel opens no path with so many links, nor one that is too long.
        """
        real, links, left = "", 0, path.split("/")[::-1]
        while left:
            if links > _MOST_LINKS or len(real) > _LONGEST:
                return path
            name = left.pop()
            if name == "..":
                real = real.rpartition("/")[0]
            elif name not in {"", "."}:
                here = f"{real}/{name}"
                if target := self._read_link(here):
                    links += 1
                    left += target.split("/")[::-1]
                    real = "" if target.startswith("/") else real
                else:
                    real = here
        return real or "/"

    def expand_patterns(self, live_paths: Container[str]) -> dict[str, list[str]]:
        """Return the paths that each pattern shows.

        A path that exists is that path. One with a star is a glob as well: a stray file named
        `*.log` must not hide the others.
        """
        found: dict[str, list[str]] = {}
        for pattern in self._selection.patterns:
            is_path = pattern in live_paths or os.path.lexists(pattern)
            if is_path:
                self.folders[os.path.dirname(pattern)] = None  # noqa: PTH120 - a path of any bytes
                is_allowed = self._begin(pattern, pattern)
                found[pattern] = self._without_excluded([pattern] if is_allowed else [])
            if not is_path or "*" in pattern or "?" in pattern:
                for one in paths.expand_braces(pattern):
                    found[one] = sorted({*found.get(one, ()), *self._expand_glob(one)})
        return found

    def _expand_glob(self, pattern: str) -> list[str]:
        """Return the paths that an absolute pattern shows, in order; always that without magic.

        `**` enters no hidden folder, and none through a symbolic link, so that links cannot lead it
        in circles. A folder that `*` or its name leads to may be a link.
        """
        begin = paths.fixed_part(pattern)
        if not self._begin(pattern, begin):
            return []
        allowed = self._allowed[pattern]
        folder = begin if paths.has_magic(pattern) else os.path.dirname(pattern)  # noqa: PTH120
        rest = pattern.removeprefix(folder).removeprefix("/").split("/")
        shown = set(self._expand(folder.removesuffix("/"), rest, allowed))
        if not paths.has_magic(pattern):
            shown = {pattern}
        return self._without_excluded(shown)

    def _begin(self, pattern: str, begin: str) -> bool:
        """Note which marked folders a pattern begins in; return whether it may show anything."""
        if self._refusals.is_pseudo_path(begin):
            self._refuse(pattern, "is in a pseudo file system of the kernel, which holds no logs")
            return False
        self._allowed[pattern] = frozenset(self._refusals.owners(self.find_real(begin)))
        return True

    def _without_excluded(self, shown: Iterable[str]) -> list[str]:
        return sorted(path for path in shown if not self._selection.excludes_file(path))

    def find_homes(self, live_paths: Mapping[str, str]) -> Mapping[str, str]:
        """Return the live paths, and the files behind those that are links, each with its group."""
        folders = dict.fromkeys(map(os.path.dirname, live_paths))
        links = {
            f"{folder}/{entry.name}"
            for folder in folders
            for entry in self._list(folder)
            if _is_link(entry)
        }
        found: dict[str, str] = {}
        for path, group in live_paths.items():
            if path in links and self._may_show(real := self.find_real(path)):
                found.setdefault(real, group)  # of several links to one file the first counts
        return {**found, **live_paths}

    def find_siblings(self, folders: Iterable[str], homes: Collection[str]) -> list[str]:
        """Return the files in these folders that were rotated from the live paths `homes`."""
        return [
            path
            for folder in folders
            if not (self.refused and self._is_left_out(folder))
            for entry in self._list(folder)
            if paths.live_names(entry.name)
            and paths.group_of(path := f"{folder}/{entry.name}", homes) != path
            and not self._selection.excludes_file(path)
        ]

    def search(
        self, sought: Mapping[int, str], known: Container[str]
    ) -> Iterator[tuple[str, str, bool]]:
        """Yield the paths nearby that have a sought inode or a rotated name, each with its group.

        The third value says that the file is a sibling by its name: a folder that has rotated files
        of a group and no live one is where they are moved to.
        """
        for folder, groups in self._names_by_folder(sought.values()).items():
            listed = self._list_quietly(folder) if self._may_show(folder) else ()
            there = {entry.name for entry in listed}
            for entry in listed:
                before = [one for one in paths.live_names(entry.name) if one in groups]
                group = sought.get(entry.inode(), "") or (groups[before[0]] if before else "")
                path = f"{folder}/{entry.name}"
                if group and path not in known and not self._selection.excludes_file(path):
                    yield path, group, bool(before) and before[0] not in there

    def _names_by_folder(self, groups: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the folders to search, with the names of the groups whose files may be in each."""
        names = defaultdict[str, dict[str, str]](dict)
        above: dict[str, None] = {}
        for group in dict.fromkeys(groups):
            folder, _, name = group.rpartition("/")
            real = self.find_real(group).rpartition("/")[0]
            for near in self._folders_near(folder, real):
                names[near][name] = group
            if real != folder:
                above[real.rpartition("/")[0]] = None
        # a link to a file may have led to a folder beside, whose rotated files are another's
        beside = chain.from_iterable(self._subfolders(one) for one in above if one)
        return {**{near: {} for near in islice(beside, _MOST_FOLDERS)}, **names}

    def _folders_near(self, *homes: str) -> Sequence[str]:
        """Return the folders that a file of these folders may have been moved to.

        Those are they and their subfolders and, if a folder above them is a link, the same folders
        beside the link's target.
        """
        if (found := self._near_folders.get(homes)) is None:
            every = (near for home in dict.fromkeys(homes) for near in self._near(home))
            found = self._near_folders[homes] = list(islice(every, _MOST_FOLDERS))
        return found

    def _near(self, folder: str) -> Iterator[str]:
        yield folder
        yield from self._subfolders(folder)
        above = folder
        while above:
            if os.path.islink(above):  # noqa: PTH114 - a path of any bytes
                rest = folder.removeprefix(above)
                beside = self.find_real(above).rpartition("/")[0]
                yield from (f"{other}{rest}" for other in self._subfolders(beside))
            above = above.rpartition("/")[0]

    def _subfolders(self, folder: str) -> list[str]:
        there = (one for one in self._list_quietly(folder) if _is_folder(one, links=False))
        found = (f"{folder}/{entry.name}" for entry in there)
        return [path for path in found if not self._refusals.is_marked(path)]

    def _list_quietly(self, folder: str) -> Sequence[os.DirEntry[str]]:
        count = len(self.troubles)
        found = self._list(folder)
        del self.troubles[count:]  # no pattern leads to this folder
        return found

    def refuses(self, entry: FileEntry, found: Mapping[str, Collection[str]]) -> bool:
        """Whether a file is left out for the folder that it is in behind a symbolic link.

        `found` are the paths that each pattern shows.
        """
        if self._refusals.is_pseudo(entry.key.device, entry.path):
            self._refuse(entry.path, "is a file of the kernel, not a log")
            return True
        if entry.real == entry.path:
            return False
        owners = set(self._refusals.owners(entry.real))
        shown_by = [begun for one, begun in self._allowed.items() if entry.path in found[one]]
        allowed = frozenset[str]().union(*shown_by)
        for owner in owners - allowed:
            self._refuse(owner, _WRITTEN_BY_US)
        return not owners <= allowed

    def _may_enter(self, path: str, allowed: Collection[str], *, is_listed: bool = False) -> bool:
        """Whether a pattern enters a folder that it shows; `is_listed`: the pattern lists it.

        `allowed` are the marked folders that the pattern begins in.
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
        if is_refused := any(
            owner not in allowed for owner in self._refusals.owners(self.find_real(path))
        ):
            self._refuse(path, _WRITTEN_BY_US)
        return not is_refused

    def _is_left_out(self, folder: str) -> bool:
        left_out = self.refused.keys() - self._allowed_by_any()
        return any(f"{folder}/".startswith(f"{one}/") for one in left_out)

    def _may_show(self, real: str) -> bool:
        return self._allowed_by_any().issuperset(self._refusals.owners(real))

    def _allowed_by_any(self) -> frozenset[str]:
        return frozenset[str]().union(*self._allowed.values())

    def _refuse(self, path: str, text: str) -> None:
        self.refused[path] = None
        self.troubles.append(Notice(NoticeKind.REFUSED, path, text))

    def _expand(self, folder: str, parts: Sequence[str], allowed: Collection[str]) -> Iterator[str]:
        """Yield the paths that the parts of a pattern show in a folder, of any depth."""
        begun = [self._expand_part(folder, parts, allowed)]
        while begun:
            for path, rest in begun[-1]:
                if rest:
                    begun.append(self._expand_part(path, rest, allowed))
                    break
                yield path
            else:
                begun.pop()

    def _expand_part(
        self, folder: str, parts: Sequence[str], allowed: Collection[str]
    ) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the paths that the first part shows, each with the parts to expand in it."""
        name, rest = parts[0], parts[1:]
        path = f"{folder}/{name}"
        if rest and not paths.has_magic(name):
            if self._may_enter(path, allowed):
                yield path, rest
            return
        self.folders[folder or "/"] = None
        if not (rest or paths.has_magic(name)):
            if os.path.lexists(path):
                yield path, rest
            return
        if is_deep := name == "**":
            yield folder, rest or ["*"]
            name, rest = "*", parts
        matches = paths.pattern_of(name).fullmatch
        for entry in [entry for entry in self._list(folder) if matches(entry.name)]:
            path = f"{folder}/{entry.name}"
            if not rest or (
                _is_folder(entry, links=not is_deep)
                and not self._selection.excludes(path)
                and self._may_enter(path, allowed, is_listed=paths.has_magic(rest[0]))
            ):
                yield path, rest

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
                # the folder may appear later, and a plain path in it is reported as missing
                if error.errno in _SHORT:
                    raise
        return found


def _is_folder(entry: os.DirEntry[str], *, links: bool) -> bool:
    with suppress(OSError):  # a link that leads nowhere, or in circles
        return entry.is_dir(follow_symlinks=links)
    return False


def _is_link(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):  # a file system without types in its folders must ask for the file
        return entry.is_symlink()
    return False


def _read_link(path: str) -> str:
    """Return the target of a symbolic link; empty for anything else."""
    with suppress(OSError):
        return os.readlink(path)  # noqa: PTH115 - a path of any bytes
    return ""
