"""Chooses the live file for lines of a host, and keeps that choice: the store knows every path.

Two kinds of paths get a mark, which holds two dots in a row, as no host's name does:
`<host>..p<N>.log` has lines that clients publish into a partition that is not the host's, and
`..%%d` or `..%%f` is added where a file's path was a folder before, or the other way round.
"""

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from receiver.storage.layout import Days, Layout
from receiver.storage.rows import FileRow
from receiver.storage.store import Store

_MOST_KNOWN = 20_000


class _Source(NamedTuple):
    """Where lines come from; `file` and `day` are empty if the layout does not use them."""

    host: str
    file: str
    day: str
    is_own: bool
    has_left: bool


@dataclass(slots=True)
class LivePaths:
    """The paths of the live files of one partition.

    `has_file` says whether something is at a path of the output folder, `is_home_of` whether a host
    belongs to the partition.
    """

    store: Store
    layout: Layout
    days: Days
    partition: int = 0
    has_file: Callable[[str], bool] = lambda _: False
    is_home_of: Callable[[str], bool] = lambda _: True
    _known: dict[tuple[str, str, str, bool, bool], str] = field(default_factory=dict)
    _new: dict[str, FileRow] = field(default_factory=dict)
    _new_folders: set[str] = field(default_factory=set)

    def choose(
        self,
        host: str,
        file: str | None,
        moment: int,
        *,
        is_own: bool = False,
        has_left: bool = False,
    ) -> str:
        """Return the path of the live file for lines that the broker stored at a moment.

        `is_own` says that the host's shipper sent them: then the host belongs to this partition, or
        did so. A host that `has_left` for another partition has taken its files along, so the lines
        go to a marked file. Raises OSError.
        """
        layout = self.layout
        day = self.days.date(moment) if layout.has_date else ""
        source = (host, layout.source(file), day, is_own, has_left)
        if (live := self._known.get(source)) is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            named = _Source(*source)
            live = self._known[source] = self._find(named) or self._make(named)
        return live

    def list_own(self, host: str) -> list[str]:
        """Return the live files without a mark: a host takes them to another partition."""
        paths = (row.path for row in self.store.list_files_of(host))
        return [path for path in paths if not self.layout.parse(path).mark]

    def clear_cache(self) -> None:
        """Ask the store again for every path, after its files have changed."""
        self._known.clear()

    def new_row(self, live: str, batch: int) -> FileRow:
        """Return the row of a live file that does not exist yet, as a batch announces it."""
        return (self._new.get(live) or FileRow(path=live, host="", source="", day=""))._replace(
            batch=batch
        )

    def mark_stored(self) -> None:
        """Note that the store has the rows of all paths that were chosen."""
        self._new.clear()
        self._new_folders.clear()

    def _find(self, source: _Source) -> str | None:
        """Return the path that was chosen before; None if there is none."""
        found = self.store.list_files_of_source(source.host, source.file, source.day)
        parsed = [(self.layout.parse(row.path), row.path) for row in found]
        plain = [path for at, path in parsed if at.host and not at.mark]
        marked = [path for _, path in sorted((at.mark, path) for at, path in parsed if at.mark)]
        if source.has_left:
            plain = []
        elif source.is_own:
            marked = []  # the marked file may hold lines of other clients
        return next(iter([*sorted(plain), *marked]), None)

    def _make(self, source: _Source) -> str:
        """Return the first path of a source that is free, and note that it is taken now."""
        live, mark = "", f"..p{self.partition}"
        is_home = source.is_own or self.is_home_of(source.host)
        for one in ("", mark) if is_home and not source.has_left else (mark,):
            live = self.layout.path(source.host, source.file, source.day, one)
            live = self._mark_conflicts(live) if self.layout.has_file else live
            if self._is_file(live):
                return live
            if not self.has_file(live):
                self._new[live] = FileRow(
                    path=live, host=source.host, source=source.file, day=source.day
                )
                self._new_folders.update(_list_parents(live))
                return live
        raise FileExistsError(errno.EEXIST, "is not in the store; move it away", live)

    def _mark_conflicts(self, live: str) -> str:
        """Mark folders of a path that are live files, and its name if it is a folder."""
        *folders, name = live.split("/")
        path = ""
        for folder in folders:
            is_file = self._is_file(path + folder) and not self._is_folder(path + folder)
            path += f"{folder}..%%d/" if is_file else f"{folder}/"
        is_folder = self._is_folder(path + name) and not self._is_file(path + name)
        return f"{path}{name}..%%f" if is_folder else path + name

    def _is_file(self, path: str) -> bool:
        return path in self._new or self.store.find_file(path) is not None

    def _is_folder(self, path: str) -> bool:
        return path in self._new_folders or self.store.has_files_below(path)


def _list_parents(path: str) -> Iterator[str]:
    """Yield the folders that a file is in, without the output folder."""
    while path := path.rpartition("/")[0]:
        yield path
