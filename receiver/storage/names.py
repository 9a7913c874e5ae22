"""Which live file the lines of a host go to, and keeps it: the store knows every name that was ever given.

Lines of a host that are published into another partition go to `<host>..p<N>.log`: no host's name holds two dots in a row.
A path that was a source file and is a folder now cannot be both below the output: one of them is marked.
"""

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from receiver.storage.layout import Days, Layout
from receiver.storage.rows import FileRow
from receiver.storage.store import Store

_MOST_KNOWN = 20_000


@dataclass(slots=True)
class LivePaths:
    """The names of the live files of one partition.

    `is_there` says whether something is at a path of the output folder, `is_home_of` whether a host belongs to the partition.
    """

    store: Store
    layout: Layout
    days: Days
    partition: int = 0
    is_there: Callable[[str], bool] = lambda _: False
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
        """Return the live file for lines of a host's file that were stored at a moment; raises OSError.

        `is_own` says that the host's shipper sent them: to a partition that is not the host's only
        while that was its own. A host that `has_left` for another partition takes its files along:
        what still comes goes to marked ones.
        """
        layout = self.layout
        day = self.days.date(moment) if layout.has_date else ""
        source = (host, (file or "") if layout.has_file else "", day, is_own, has_left)
        if (live := self._known.get(source)) is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            live = self._known[source] = self._stored(*source) or self._given(*source)
        return live

    def list_own(self, host: str) -> list[str]:
        """Return the live files of a host that are not marked: they go with it to another partition."""
        paths = (row.path for row in self.store.list_files_of(host))
        return [path for path in paths if not self.layout.parse(path).mark]

    def clear_cache(self) -> None:
        """Ask the store again for every name: other files have come to it, or left it."""
        self._known.clear()

    def new_row(self, live: str, batch: int) -> FileRow:
        """Return the row of a live file that was never there, as a batch announces it."""
        return (self._new.get(live) or FileRow(live, "", "", ""))._replace(batch=batch)

    def _stored(self, host: str, file: str, day: str, is_own: bool, has_left: bool) -> str | None:
        found = self.store.list_files_of_source(host, file, day)
        paths = [(self.layout.parse(row.path), row.path) for row in found]
        # a marked file may be that of other clients, and the host's own lines have another one
        marked = [(at.mark, live) for at, live in paths if at.host and at.mark]
        plain = [(at.mark, live) for at, live in paths if at.host and not at.mark]
        fitting = (marked if not is_own or has_left else []) + (plain if not has_left else [])
        return min(fitting)[1] if fitting else None

    def _given(self, host: str, file: str, day: str, is_own: bool, has_left: bool) -> str:
        """Return the first of a host's paths that is free, and note that it was given."""
        live = ""
        own = f"..p{self.partition}"
        may_be_plain = not has_left and (is_own or self.is_home_of(host))
        for mark in ("", own) if may_be_plain else (own,):
            live = self.layout.path(host, file or None, day, mark)
            live = self._untangled(live) if self.layout.has_file else live
            if self._is_file(live):
                return live
            if not self.is_there(live):
                self._new[live] = FileRow(live, host, file, day)
                self._new_folders.update(_folders_of(live))
                return live
        raise FileExistsError(errno.EEXIST, "is not known to the store; move it away", live)

    def _untangled(self, live: str) -> str:
        """Return a path none of whose folders is a live file, and which is no folder of another."""
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

    def mark_stored(self) -> None:
        """Take the names that were given as known to the store."""
        self._new.clear()
        self._new_folders.clear()


def _folders_of(path: str) -> Iterator[str]:
    """Yield the paths of the folders that a file is in, but for the output folder."""
    while path := path.rpartition("/")[0]:
        yield path
