"""Hosts that move between partitions: their live files, segments and spans go from one store to the next.

The partition that a host leaves puts its files aside with the batch in which it reads so, and cuts nothing of them from
then on. The next one takes them away when that batch is committed: nothing undoes it any more. So a file is in one store
only, whichever way a host goes; one that nobody has taken is there for the host when it comes back.
"""

from collections.abc import Iterable

from receiver.storage.store import Store

__all__ = ["forget_spans", "leave", "take_back", "take_over"]


def leave(store: Store, paths: Iterable[str], batch: int) -> None:
    """Put live files aside for another partition, within the transaction of a batch; segments stay until they are taken.

    A day's file that the same batch has closed, as the day is over, may get more lines of that day there.
    """
    gone = list(paths)
    store.change_all(
        "DELETE FROM segments WHERE path = ? AND path = live AND batch = ?",
        ((path, batch) for path in gone),
    )
    store.change_all(
        "INSERT OR REPLACE INTO left_files SELECT *, ? FROM files WHERE path = ?",
        ((batch, path) for path in gone),
    )
    store.forget_files(gone)


def take_back(store: Store, where: str, *values: object) -> None:
    """Take the files back that were put aside, and for which a condition holds, in a transaction of its own."""
    if not (found := store.left_files(where, *values)):
        return
    with store.transaction():
        store.put_files(row for row in found if store.file(row.path) is None)
        store.change(f"DELETE FROM left_files WHERE {where}", *values)


def take_over(store: Store, before: Store, host: str) -> None:
    """Take the files of a host over that another store has put aside; what is here already stays.

    The host's last batch there is committed, so that nothing of this is ever undone. Raises OSError, `Damaged`.
    """
    left = before.left_files("host = ?", host)
    files = [
        row._replace(length_before=row.length, batch=0)
        for row in left
        if store.file(row.path) is None
    ]
    segments = [
        segment._replace(batch=0)
        for row in files
        for segment in before.segments("live = ?", row.path)
    ]
    spans = before.rows(
        "SELECT host, file, until, read_at FROM spans WHERE host = ? AND file != ''", host
    )
    with store.transaction():
        store.put_files(files)
        store.put_segments(segments)
        store.change_all(
            "INSERT INTO spans VALUES (?, ?, ?, NULL, ?, NULL, 0) ON CONFLICT DO UPDATE SET "
            "until = max(until, excluded.until), read_at = max(read_at, excluded.read_at)",
            spans,
        )
    if not left:
        return  # a host may name any partition, whose store is not to be locked for nothing
    with before.transaction():
        gone = [(row.path,) for row in left]
        before.change_all("DELETE FROM left_files WHERE path = ?", gone)
        before.change_all("DELETE FROM segments WHERE live = ?", gone)


def forget_spans(store: Store, host: str) -> None:
    """Forget how far the source files of a host were received, in a transaction of its own."""
    with store.transaction():
        store.change("DELETE FROM spans WHERE host = ? AND file != ''", host)
