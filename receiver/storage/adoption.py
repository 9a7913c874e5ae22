"""`logreceiver offsets adopt`: takes the files of a partition for committed, as they are."""

import time
from contextlib import closing

from nats_logship.wire.offset import Offset
from receiver.storage.anomalies import name_gap_report
from receiver.storage.damage import Damaged
from receiver.storage.folders import Folders
from receiver.storage.layout import Layout
from receiver.storage.partition_folders import PartitionFolders
from receiver.storage.recovery import make_empty_batch
from receiver.storage.rotation import parse_segment
from receiver.storage.rows import UNKNOWN, FileRow, SegmentRow
from receiver.storage.store import Store


def adopt(folders: PartitionFolders, offset: Offset) -> int:
    """Have the store list the files that exist, with the lengths that they have.

    Returns the number of live files. To be called under the partition's lock. Gaps and spans are
    kept if they can be read; a store that cannot be read is renamed. Raises OSError.
    """
    ours = set(folders.find_files())
    with _open_store(folders) as store, closing(Folders(folders.output)) as output:
        known = {row.path: row for row in store.list_files()}
        ours |= {path for path in {*known, name_gap_report(folders.partition)} if output.find(path)}
        lives = sorted(path for path in ours if not parse_segment(path))
        numbers: dict[str, int] = {}
        for live, number, _ in filter(None, map(parse_segment, ours)):
            numbers[live] = max(number, numbers.get(live, 0))
        rows = [_make_row(path, known, numbers.get(path, 0), output, folders) for path in lives]
        segments = [_make_segment(path, output, folders) for path in ours.difference(lives)]
        batch = store.read_batch()
        number = batch.number + 1 if batch else 1
        committed = make_empty_batch(number, offset, store.inode, output.inode, folders.template)
        with store.transaction():
            store.put_batch(committed)
            store.forget_batches()
            store.put_files(rows)
            store.put_segments(segments)
    return len(rows)


def _open_store(folders: PartitionFolders) -> Store:
    """Open the store; rename one that is damaged, and create another."""
    path = folders.store_path
    try:
        with Store.create(path) as store:
            store.check()
    except Damaged:
        path.replace(path.with_name(f"{path.name}.damaged-{time.time_ns()}"))
        for suffix in ("-wal", "-shm", "-journal"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    return Store.create(path)


def _make_row(
    path: str, known: dict[str, FileRow], number: int, output: Folders, folders: PartitionFolders
) -> FileRow:
    """Return the row of a live file as it is; `number` is the highest of its segments."""
    found, parsed = output.find(path), Layout(folders.template).parse(path)
    assert found is not None, "it was just listed"
    row = known.get(path) or FileRow(path=path, host=parsed.host, source="", day=parsed.day)
    return row._replace(
        length=found.st_size,
        length_before=found.st_size,
        inode=found.st_ino,
        number=max(row.number, number + 1),
        last_line=row.last_line or found.st_mtime_ns,
        unfinished=UNKNOWN if row.host and found.st_size else None,
        batch=0,
    )


def _make_segment(path: str, output: Folders, folders: PartitionFolders) -> SegmentRow:
    found, closed = output.find(path), parse_segment(path)
    assert found is not None, "it was just listed"
    assert closed is not None, "it is not a live file"
    live, number, suffix = closed
    return SegmentRow(
        path=path.removesuffix(suffix),
        live=live,
        number=number,
        day=Layout(folders.template).parse(live).day,
        size=found.st_size,
        last_line=found.st_mtime_ns,
        compressed=suffix,
        batch=0,
        length=None if suffix else found.st_size,
    )
