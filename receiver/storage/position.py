"""Where a partition stands: by its store, by KV, and what follows from the two. Decides only."""

from dataclasses import dataclass

__all__ = ["Damaged", "Position", "StoredBatch", "first_undone"]


class Damaged(Exception):
    """Store, files and offset do not go together; a person has to decide."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
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


@dataclass(frozen=True, slots=True)
class Position:
    """Where a partition goes on by KV: `next` of a stream, which was made at `created`, in an epoch.

    `committed_in` is the epoch of the last commit, None where that is not known. `moved_in` is the epoch in which
    a person has moved the offset since, 0 for none, and `moved_from` where it was before. `is_anew` says that a person has written the entry where none was,
    and nothing was committed since: its epochs begin again, and where it stood nobody knows.
    """

    next: int
    epoch: int
    stream: str
    created: str
    committed_in: int | None = None
    moved_in: int = 0
    moved_from: int = 0
    is_anew: bool = False


def first_undone(batch: StoredBatch, position: Position, partition: int) -> int:
    """Return the number of the first batch that is to be taken back: one that was stored, or the one behind it.

    A person may have moved the offset since: then where it was before counts as well. Where the stream is another one by
    now, restored from a backup or made anew, nothing can be read again: what is stored stays.
    Others may have committed as far as an unfinished batch of ours, into other files.
    Raises `Damaged` where neither end of the stored batch is the offset.
    """
    is_same = batch.created in {"", position.created}
    if not is_same and position.moved_in and position.moved_from <= batch.until:
        return batch.number + 1
    stood = position.moved_from if position.moved_in > batch.epoch else None
    if position.is_anew:
        stood = position.next
    committed = position.next if stood is None else stood
    is_ours = batch.first == batch.until or position.committed_in in {None, batch.epoch}
    is_older = batch.epoch <= position.epoch or position.is_anew
    if is_older and (is_same or stood is not None):
        if batch.until == committed and is_ours:
            return batch.number + 1
        if batch.first == committed:
            return batch.number
        if stood is not None and batch.until == position.next:
            return batch.number + 1
        if stood is not None and batch.first == position.next:
            return batch.number
    raise Damaged(_contradiction(batch, position, partition, is_same=is_same))


def _contradiction(batch: StoredBatch, position: Position, partition: int, *, is_same: bool) -> str:
    what = f"the files were written up to sequence {batch.until}"
    if not is_same:
        what += f" of a stream made at {batch.created}"
    if batch.epoch > position.epoch:
        what += f" in epoch {batch.epoch}"
    if is_same and batch.epoch <= position.epoch and batch.until == position.next:
        what += ", which others have committed into other files"
    begun = f" (their last batch begins at {batch.first})" if batch.first != batch.until else ""
    return (
        f"{what}{begun}, but the offset of partition {partition} is {position.next} in epoch {position.epoch}: they do not "
        f"belong together, one of them is older; bring back the right one, or `logreceiver offsets adopt --partition "
        f"{partition}` takes the files as they are, and goes on at {position.next}"
    )
