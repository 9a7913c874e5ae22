"""Walks the folders that patterns lead through: which paths they show, and where more of them may appear.

Blocks, so it runs in a thread; opens no file and remembers nothing beyond one walk.
"""

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from shipper.files.globs import has_magic, pattern_of
from shipper.notice import Notice, NoticeKind

__all__ = ["Walk"]

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
