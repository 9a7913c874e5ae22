"""Hosts that move between partitions: their live files, segments and spans go from one store to the next.

The partition that a host leaves puts them aside with the batch in which it reads so, and cuts nothing of them from then
on. The next one takes them over when that batch is committed: nothing undoes it any more.
"""

from collections.abc import Iterable

from receiver.storage.store import Store

__all__ = ["leave", "take_back", "take_over"]


def leave(store: Store, paths: Iterable[str], partition: int, batch: int) -> None:
    """Put live files aside for another partition, with their segments, within the transaction of a batch."""
    gone = list(paths)
    for path in gone:
        store.change(
            "INSERT OR REPLACE INTO left_files SELECT *, ?, ? FROM files WHERE path = ?",
            *(partition, batch, path),
        )
        store.change(
            "INSERT OR REPLACE INTO left_segments SELECT *, ? FROM segments WHERE live = ?",
            *(batch, path),
        )
        store.change("DELETE FROM segments WHERE live = ?", path)
    store.forget_files(gone)


def take_back(store: Store, since: int) -> None:
    """Take back what batches from a number on have put aside, in a transaction of its own: these batches are undone next."""
    if not store.rows("SELECT 1 FROM left_files WHERE left_in >= ? LIMIT 1", since):
        return
    with store.transaction():
        files, segments = (
            store.left_files("left_in >= ?", since),
            store.left_segments("left_in >= ?", since),
        )
        store.put_files(files)
        store.put_segments(segments)
        store.change("DELETE FROM left_files WHERE left_in >= ?", since)
        store.change("DELETE FROM left_segments WHERE left_in >= ?", since)


def take_over(store: Store, before: Store, host: str, partition: int) -> None:
    """Take the files of a host over that another store has put aside for this partition; what is here already stays.

    The host's last batch there is committed, so that nothing of this is ever undone. Raises OSError, `Damaged`.
    """
    files = [
        row._replace(length_before=row.length, batch=0)
        for row in before.left_files("left_to = ? AND host = ?", partition, host)
        if store.file(row.path) is None
    ]
    segments = [
        segment._replace(batch=0)
        for row in files
        for segment in before.left_segments("live = ?", row.path)
    ]
    spans = before.rows(
        "SELECT host, file, until, read_at FROM spans WHERE host = ? AND file != ''", host
    )
    with store.transaction():
        for row in files:
            store.change("DELETE FROM left_files WHERE path = ?", row.path)
            store.change("DELETE FROM left_segments WHERE live = ?", row.path)
        store.put_files(files)
        store.put_segments(segments)
        store.change_all(
            "INSERT INTO spans VALUES (?, ?, ?, NULL, ?, NULL, 0) ON CONFLICT DO UPDATE SET until = max(until, excluded.until)",
            spans,
        )
