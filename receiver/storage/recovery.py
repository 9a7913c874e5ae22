"""What the next start does with a batch: kept, cut off or taken back, as the offset in KV says. One path for all of it.

Also a batch that fails in mid-run is taken back by this. Every step may find that it was done before.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

from broker.app.faults import fault
from receiver.storage.folders import Folders
from receiver.storage.position import Position
from receiver.storage.store import FileRow, SegmentRow, Store
from receiver.storage.tables import take_back

__all__ = ["recover"]

_FLAGS = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def recover(store: Store, folders: Folders, since: int, position: Position) -> list[str]:
    """Take back the batches from a number on, and cut what stands behind the committed length of any file.

    On disk when this returns, with what is to be told of files that other hands have taken. Raises OSError, `Damaged`.
    """
    batch = store.batch()
    assert batch is not None, "begun before it is recovered"
    trusts_inodes = batch.store_inode in {0, store.inode()}
    take_back(store, "left_in >= ?", since)
    undo = _Undo(store, folders, since, trusts_inodes=trusts_inodes)
    undo.run()
    fault("undone")
    after = replace(
        batch,
        epoch=position.epoch,
        first=position.next,
        until=position.next,
        stream=position.stream,
        created=position.created,
        store_inode=store.inode(),
        output_inode=folders.inode,
    )
    is_same = (batch.until, batch.created) == (position.next, position.created)
    is_kept = is_same and since > batch.number and batch.first == batch.until
    if undo.has_news or not is_kept or not trusts_inodes:
        with store.transaction():
            undo.note()
            store.put_batch(after)
        fault("settled")
    return undo.notices


class _Undo:
    """The files of a partition made again what they were before a batch."""

    def __init__(self, store: Store, folders: Folders, since: int, *, trusts_inodes: bool) -> None:
        self._store = store
        self._folders = folders
        self._since = since
        self._trusts_inodes = trusts_inodes
        self._after: list[FileRow] = []
        self._gone: list[str] = []
        self.notices: list[str] = []
        self.has_news = False

    def run(self) -> None:
        """Change the files; on disk when this returns."""
        segments = self._store.segments("batch >= ?", self._since)
        closed = {
            live: list(group) for live, group in groupby(segments, key=lambda segment: segment.live)
        }
        touched = {row.path: row for row in self._store.files("batch >= ?", self._since)}
        for live in closed:
            if live not in touched and (row := self._store.file(live)):
                touched[live] = row
        self.has_news = bool(segments or touched)
        self._cut_others(touched)
        for row in touched.values():
            parts = [part for part in closed.get(row.path, ()) if part.path != part.live]
            self._folders.note_change(row.path.rpartition("/")[0])
            with self._folders.naming(row.path):
                self._take_back(row, parts)
            fault("undoing")
        self._folders.sync()

    def note(self) -> None:
        """Have the store say so, within a transaction."""
        store, since = self._store, self._since
        store.put_files(self._after)
        store.forget_files(self._gone)
        store.change("DELETE FROM segments WHERE batch >= ?", since)
        store.change("DELETE FROM gaps WHERE batch >= ?", since)
        store.change("DELETE FROM spans WHERE batch >= ? AND until_before IS NULL", since)
        store.change(
            "UPDATE spans SET until = until_before, read_at = read_at_before, batch = 0 WHERE batch >= ?",
            since,
        )

    def _cut_others(self, touched: Mapping[str, FileRow]) -> None:
        """Cut what an unfinished batch has appended to files that were known to it: of these nothing was announced."""
        where = "length IS NOT NULL AND path NOT IN (SELECT path FROM segments)"
        for row in self._store.files(where):
            if row.path in touched:
                continue
            found = self._regular(row.path)
            if found is None:
                continue
            if self._is_row(row.inode, found.st_ino) and found.st_size > (row.length or 0):
                self._cut(row.path, row.length or 0)
            if not self._trusts_inodes and found.st_ino != row.inode:
                self._after.append(row._replace(inode=found.st_ino))

    def _regular(self, path: str) -> os.stat_result | None:
        with suppress(OSError):  # that's fine: it is told when lines come for it
            return self._folders.find(path)
        return None

    def _is_row(self, inode: int, found: int) -> bool:
        return not self._trusts_inodes or inode in {0, found}

    def _take_back(self, row: FileRow, parts: list[SegmentRow]) -> None:
        is_undone = row.batch >= self._since
        length = row.length_before if is_undone else row.length
        before = row._replace(
            length=length,
            length_before=length,
            last_line=row.last_line_before if is_undone else row.last_line,
            unfinished=row.unfinished_before if is_undone else row.unfinished,
            number=parts[0].number if parts else row.number,
            batch=0,
        )
        for part in reversed(parts[1:]):
            self._remove(part.path)
        if length is None:
            self._remove_all(before, parts)
        elif parts:
            self._reopen(before, parts)
        else:
            self._keep(before)

    def _remove_all(self, row: FileRow, parts: Iterable[SegmentRow]) -> None:
        """Remove a file that the batch has made, and its segments."""
        for part in parts:
            self._remove(part.path)
        self._remove(row.path)
        if row.number == 1:
            self._gone.append(row.path)
        else:
            self._after.append(row._replace(inode=0))

    def _reopen(self, row: FileRow, parts: list[SegmentRow]) -> None:
        """Give a file that the batch has closed its name again."""
        closed, found = self._folders.find(parts[0].path), self._folders.find(row.path)
        if closed:
            name, folder = self._folders.at(row.path)
            os.replace(parts[0].path.rpartition("/")[2], name, src_dir_fd=folder, dst_dir_fd=folder)
        elif found is None or not self._is_row(parts[0].inode, found.st_ino):
            self._remove(row.path)
            self.notices.append(
                f"{parts[0].path}, of which {row.length} bytes were committed, is gone: it was moved or removed by "
                "somebody else in the middle of a batch; a new file begins"
            )
            number = parts[-1].number + 1
            self._after.append(row._replace(length=None, inode=0, number=number, unfinished=None))
            return
        self._keep(row._replace(inode=parts[0].inode))

    def _keep(self, row: FileRow) -> None:
        found = self._folders.find(row.path)
        if found and self._is_row(row.inode, found.st_ino):
            if found.st_size > (row.length or 0):
                self._cut(row.path, row.length or 0)
            row = row._replace(inode=found.st_ino)
        self._after.append(row)

    def _cut(self, path: str, length: int) -> None:
        with self._folders.naming(path):
            name, folder = self._folders.at(path)
            descriptor = os.open(name, _FLAGS, dir_fd=folder)
            try:
                os.ftruncate(descriptor, length)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):  # that's fine: the batch broke off before it was made
            name, folder = self._folders.at(path)
            os.unlink(name, dir_fd=folder)
