"""What the next start does with a batch: kept, or cut off, as the offset in KV says. One path for all of it.

Also a batch that fails in mid-run is taken back by this. Every step may find that it was done before. Rotations are
finished and never undone: a batch closes files only before it appends to them.
"""

import os
from contextlib import suppress
from dataclasses import replace

from broker.app.faults import fault
from broker.wire.offset import Offset
from receiver.storage.folders import Folders
from receiver.storage.store import FileRow, SegmentRow, Store

__all__ = ["recover"]

_FLAGS = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def recover(store: Store, folders: Folders, since: int, offset: Offset) -> None:
    """Take back the batches from a number on, and cut what is behind the committed length of any file.

    On disk when this returns. Raises OSError, `Damaged`.
    """
    batch = store.batch()
    assert batch is not None, "begun before it is recovered"
    trusts_inodes = batch.store_inode in {0, store.inode()}
    if store.rows("SELECT 1 FROM files WHERE left_in >= ? LIMIT 1", since):
        with store.transaction():
            store.change("UPDATE files SET left_in = 0 WHERE left_in >= ?", since)
    closing = store.segments("batch > ? AND path != live", batch.number)
    for segment in closing:
        _finish_closing(segment, folders, trusts_inodes=trusts_inodes)
    rows = store.files("path NOT IN (SELECT path FROM segments)")
    recovered = [_recovered(row, folders, since, trusts_inodes=trusts_inodes) for row in rows]
    folders.sync()
    fault("undone")
    after = replace(
        batch,
        epoch=offset.epoch,
        first=offset.next,
        until=offset.next,
        stream=offset.stream,
        created=offset.stream_created,
        store_inode=store.inode(),
        output_inode=folders.inode,
    )
    changed = [row for row, before in zip(recovered, rows, strict=True) if row != before]
    if changed or closing or after != batch:
        with store.transaction():
            store.put_files(changed)
            store.change("UPDATE segments SET batch = 0 WHERE batch > ?", batch.number)
            _take_back(store, since)
            store.put_batch(after)
        fault("settled")


def _finish_closing(segment: SegmentRow, folders: Folders, *, trusts_inodes: bool) -> None:
    """Give a file that was to be closed its closed name, unless it has that already."""
    live = _regular(segment.live, folders)
    if live is None:
        return
    closed = segment.path.rpartition("/")[2]
    if live.st_ino == segment.inode if trusts_inodes else not folders.find(segment.path):
        folders.note_change(segment.live.rpartition("/")[0])
        with folders.naming(segment.live):
            name, folder = folders.at(segment.live)
            os.rename(name, closed, src_dir_fd=folder, dst_dir_fd=folder)
        fault("undoing")


def _recovered(row: FileRow, folders: Folders, since: int, *, trusts_inodes: bool) -> FileRow:
    """Make a file what it was before a batch; return its row as it is then."""
    is_undone = row.batch >= since
    length = row.length_before if is_undone else row.length
    found = _regular(row.path, folders)
    is_new = is_undone and not row.inode
    if found and (found.st_ino == row.inode or is_new or not trusts_inodes):
        if found.st_size > length:
            _cut(row.path, length, folders)
            fault("undoing")
        row = row._replace(inode=found.st_ino)
    if not is_undone:
        return row
    return row._replace(
        length=length,
        length_before=length,
        last_line=row.last_line_before,
        unfinished=row.unfinished_before,
        batch=0,
    )


def _regular(path: str, folders: Folders) -> os.stat_result | None:
    with suppress(OSError):  # that's fine: it is told when lines come for it
        return folders.find(path)
    return None


def _cut(path: str, length: int, folders: Folders) -> None:
    with folders.naming(path):
        name, folder = folders.at(path)
        descriptor = os.open(name, _FLAGS, dir_fd=folder)
        try:
            os.ftruncate(descriptor, length)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _take_back(store: Store, since: int) -> None:
    store.change("DELETE FROM gaps WHERE batch >= ?", since)
    store.change("DELETE FROM spans WHERE batch >= ? AND until_before IS NULL", since)
    store.change(
        "UPDATE spans SET until = until_before, read_at = read_at_before, batch = 0 WHERE batch >= ?",
        since,
    )
