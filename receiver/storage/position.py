"""Where a partition stands: by its store, by KV, and what follows from the two. Decides only."""

from typing import NamedTuple

from broker.wire.offset import Offset


class Damaged(Exception):
    """Store, files and offset do not go together; a person has to decide."""


class StoredBatch(NamedTuple):
    """The batch that was stored last: messages `[first, until)` of a stream, which was made at `created`.

    `store_inode` and `output_inode` are those of the store and of the output folder then: a copy has others.
    """

    number: int
    epoch: int
    first: int
    until: int
    stream: str = ""
    created: str = ""
    store_inode: int = 0
    output_inode: int = 0


def settled(number: int, offset: Offset, store_inode: int, output_inode: int) -> StoredBatch:
    """Return an empty batch at an offset: nothing that is written is waiting for its commit."""
    begin, stream = (offset.epoch, offset.next, offset.next), (offset.stream, offset.stream_created)
    return StoredBatch(number, *begin, *stream, store_inode, output_inode)


def first_undone(batch: StoredBatch, offset: Offset, partition: int) -> int:
    """Return the number of the first batch that is to be taken back: one that was stored, or the one behind it.

    A person may have moved the offset since: then where it was before counts as well. Where the stream is another one by
    now, restored from a backup or made anew, nothing can be read again: what is stored stays.
    Others may have committed as far as an unfinished batch of ours, into other files.
    Raises `Damaged` where neither end of the stored batch is the offset.
    """
    is_same = batch.created in {"", offset.stream_created}
    moved_from = offset.moved_from or offset.next
    if not is_same and offset.moved_in and moved_from <= batch.until:
        return batch.number + 1
    # a person has written the entry where none was: where it stood nobody knows, and its epochs begin again
    is_anew = bool(offset.moved_in and not offset.moved_from and not offset.committed_in)
    is_moved = is_anew or offset.moved_in > batch.epoch
    is_ours = batch.first == batch.until or offset.committed_in in {0, batch.epoch}
    if (batch.epoch <= offset.epoch or is_anew) and (is_same or is_moved):
        for committed in (moved_from, offset.next) if is_moved else (offset.next,):
            if batch.until == committed and (is_ours or (is_moved and committed == offset.next)):
                return batch.number + 1
            if batch.first == committed:
                return batch.number
    raise Damaged(
        f"the files were written from sequence {batch.first} up to sequence {batch.until} in epoch {batch.epoch}, but the "
        f"offset of partition {partition} is {offset.next} in epoch {offset.epoch}: they do not belong together, one of them "
        f"is older, of another stream or of other files; bring back the right one, or `logreceiver offsets adopt --partition "
        f"{partition}` takes the files as they are, and goes on at {offset.next}"
    )
