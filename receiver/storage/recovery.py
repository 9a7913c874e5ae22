"""Store a batch in one transaction; at a start undo the stored batch if it was not committed.

`logreceiver offsets adopt` takes the files of a partition for committed, as they are (`adopt`).

`receiver/consume/batch.py` has the order of all steps. A start compares the entry in KV with the
stored batch (`find_first_to_undo`), and makes the files what the entry says (`recover`). If the
stored batch is not committed, the session has fenced the entry before (`OffsetEntry.fence`).

| the entry names | the stored batch is | the start |
|---|---|---|
| `commit_id` | committed | takes each file's `length` for committed |
| `previous_id` | not committed | takes each file's `length_before`, undoes spans and gaps |
| another stream: restored or created again | of messages that are gone | does as for `commit_id` |
| any id, and a person set `next` to the files' end | confirmed | does as for `commit_id` |
| anything else | unknown | raises `Damaged`, and changes nothing |

The first two rows also require that the entry's `next` is the batch's `until` or `first`, unless a
person has set it with `logreceiver offsets set`.

Bytes behind the committed length stay in the files: the session receives their lines again
(`surplus`).

A rename to a segment is finished and never undone: a batch renames a file before it appends, when
all lines in the file are committed. A start that is killed can be repeated: each step first checks
whether it is done.
"""

import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

from nats_logship.app.faults import fault
from nats_logship.wire.offset import Offset
from receiver.storage.anomalies import Anomaly, name_gap_report
from receiver.storage.damage import ADOPT, Damaged, Remedy
from receiver.storage.folders import Folders
from receiver.storage.layout import Layout
from receiver.storage.partition_folders import PartitionFolders
from receiver.storage.rotation import parse_segment
from receiver.storage.rows import UNKNOWN, FileRow, SegmentRow, StoredBatch, inode_of
from receiver.storage.spans import StoredSpanEnds, put_gaps
from receiver.storage.store import Store
from receiver.storage.surplus import BY_OTHERS, Surplus, find_safely


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """What a batch has written and synced.

    `moved` are the paths of files whose host has moved to another partition.
    """

    files: Iterable[FileRow]
    spans: StoredSpanEnds
    gaps: Iterable[Anomaly] = ()
    moved: Iterable[str] = ()


def store_batch(store: Store, batch: StoredBatch, written: WrittenBatch) -> None:
    """Write all rows of a batch in one transaction; on disk at the end. Raises OSError, `Damaged`.

    Sync the batch's files before, and commit its offset to KV after that.
    """
    with store.transaction():
        store.put_files(written.files)
        store.put_batch(batch)
        store.leave_files(written.moved, batch.number)
        written.spans.store(batch.number)
        put_gaps(store, written.gaps, batch.number)


def make_empty_batch(
    number: int, offset: Offset, store_inode: int, output_inode: int, template: str
) -> StoredBatch:
    """Return a batch without messages that ends at an offset: it counts as committed."""
    return StoredBatch(
        number=number,
        epoch=offset.epoch,
        first=offset.next,
        until=offset.next,
        commit_id=offset.commit,
        previous_id=offset.commit,
        stream=offset.stream,
        created=offset.stream_created,
        store_inode=store_inode,
        output_inode=output_inode,
        template=template,
    )


def find_first_to_undo(batch: StoredBatch, offset: Offset, partition: int) -> int:
    """Return the number of the stored batch if it must be undone, else that number plus one.

    No row of the store has the latter number. `offset` is
    the entry in KV. If it names a batch, its `next` is that batch's end, unless a person has
    moved it with `logreceiver offsets set`. Raises `Damaged` for any other offset.
    """
    is_moved = offset.moved_in > 0
    if batch.created not in {"", offset.stream_created}:
        # the stream was restored or created again, so the old messages are gone: lines that we cut
        # now could not be fetched again
        return batch.number + 1
    if offset.commit == batch.commit_id and (is_moved or offset.next == batch.until):
        return batch.number + 1
    if offset.commit == batch.previous_id and (is_moved or offset.next == batch.first):
        return batch.number
    if is_moved and offset.next == batch.until:
        # a person who sets the offset to the files' end confirms that they match
        return batch.number + 1
    cause = "the broker's offsets are older than the files"
    if offset.next > batch.until:
        cause = (
            "a receiver with another --output has received the lines between, or these files are "
            "older (a backup)"
        )
    raise Damaged(
        partition,
        f"the files end before sequence {batch.until}, but the offset is {offset.next} and "
        f"belongs to another batch; probably {cause}",
        (_go_on_at(batch.until), ADOPT),
    )


def _go_on_at(until: int) -> Remedy:
    effect = "goes on where these files end, with the lines between if the stream still has them"
    return Remedy(f"set --partition {{}} --to {until}", effect)


def recover(
    store: Store, folders: Folders, first_to_undo: int, offset: Offset, template: str
) -> Surplus:
    """Undo the stored batch if its number is `first_to_undo`, and any batch that is announced only.

    Finishes renames; returns the bytes that files have behind their committed lengths. To be called
    under the partition's lock, with the result of `find_first_to_undo`. Raises OSError, `Damaged`.
    """
    batch = store.read_batch()
    assert batch is not None, "a store has a batch when it is created"
    trusts_inodes = batch.store_inode in {0, store.inode}  # else files and store are copies
    store.return_files_since(first_to_undo)
    has_renames = _finish_renames(store, folders)
    before, surplus = store.list_files_to_recover(first_to_undo), Surplus()
    after = [
        _recover_file(row, folders, surplus, first_to_undo, trusts_inodes=trusts_inodes)
        for row in before
    ]
    folders.sync()
    fault("undone")
    # the row becomes an empty batch, which is committed: a second start has nothing to undo
    committed = make_empty_batch(batch.number, offset, store.inode, folders.inode, template)
    changed = [row for row, old in zip(after, before, strict=True) if row != old]
    if changed or has_renames or committed != batch:
        with store.transaction():
            store.put_files(changed)
            store.undo(first_to_undo)
            store.put_batch(committed)
        fault("recovered")
    return surplus


def _finish_renames(store: Store, folders: Folders) -> bool:
    """Rename live files to segments that are announced; return whether there are any.

    Raises OSError also if a file cannot be looked at just now: not renamed, it would be taken for
    the next live file, and all its lines for a surplus.
    """
    announced = store.list_segments_to_rename()
    for segment in announced:
        found = folders.find(segment.live)
        if found and not folders.find(segment.path):
            if segment.length is not None and found.st_size > segment.length:
                folders.cut(segment.live, segment.length)  # another program has appended to it
            folders.rename(segment.live, segment.path)
            fault("undoing")
    return bool(announced)


def _recover_file(
    row: FileRow, folders: Folders, surplus: Surplus, first_to_undo: int, *, trusts_inodes: bool
) -> FileRow:
    """Return the row of a file as of its committed length; note the bytes behind that.

    A file whose inode is not the one of its row is left as it is. In a copied store inodes say
    nothing: any file at the path is then the one of the row.
    """
    is_undone, inode = row.batch >= first_to_undo, row.inode
    if is_undone:
        row = row._replace(
            length=row.length_before,
            last_line=row.last_line_before,
            unfinished=row.unfinished_before,
            batch=0,
        )
    found = find_safely(folders, row.path)
    is_new = is_undone and not inode
    if found is None or not (inode_of(found) == inode or is_new or not trusts_inodes):
        return row
    if found.st_size > row.length:
        surplus.ends[row.path] = found.st_size
        if row.unfinished == UNKNOWN:  # we close an adopted file before we append to it
            surplus.cut(folders, row.path, found.st_size, row.length, BY_OTHERS)
    return row._replace(inode=inode_of(found))


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
        inode=inode_of(found),
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
