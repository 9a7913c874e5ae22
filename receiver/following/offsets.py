"""Where a partition goes on from: what KV says, held against what the stream is. Decides; never asks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from broker.app.exits import ConfigurationError
from broker.wire.descent import Ancestor
from broker.wire.offset import Beginning, Offset
from broker.wire.streams import OFFSETS_BUCKET, offset_key
from receiver.writing import journal
from receiver.writing.evidence import Bond, Evidence
from receiver.writing.journal import Batch, Verdict

__all__ = [
    "FilesMismatch",
    "StreamMismatch",
    "StreamRestored",
    "StreamState",
    "after",
    "carried_over",
    "claimed",
    "elsewhere",
    "has_witness",
    "moved",
    "start",
]

_ROUNDED = timedelta(milliseconds=5)  # entries hold times to the millisecond

_NOWHERE = Evidence("", "")


class StreamMismatch(ConfigurationError):
    """The stream is not the one that the offset belongs to; going on could lose or repeat lines."""


class StreamRestored(StreamMismatch):
    """The stream was restored from a backup of the one that the offset belongs to; a claim carries the offset over."""


class FilesMismatch(ConfigurationError):
    """The files are not those that the offset speaks of; going on could lose or repeat lines."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """The stream as the broker describes it: when it was made, and the sequences it holds, `[first, until)`.

    `witness` is when the message before the offset was stored (RFC 3339), empty where that was not asked or is gone.
    `ancestors` are the streams that it was restored from, oldest first.
    """

    created: str
    first: int
    until: int
    witness: str = ""
    ancestors: tuple[Ancestor, ...] = ()

    def in_common_with(self, created: str) -> int | None:
        """Return the end of what it has in common with a stream that it was restored from; None for any other."""
        return next((one.until for one in self.ancestors if one.created == created), None)


def start(offset: Offset | None, stream: StreamState, partition: int) -> int:
    """Return the first sequence to receive; raises `StreamMismatch` when the stream was recreated or rewound."""
    if offset is None:
        return max(stream.first, 1)
    if stream.in_common_with(offset.stream_created) is not None:
        raise StreamRestored(f"partition {partition}: stream LOGS was restored from a backup")
    if offset.stream_created != stream.created:
        raise StreamMismatch(
            f"partition {partition}: stream LOGS was made anew at {stream.created}, its offset {offset.next} belongs "
            f"to the one of {offset.stream_created}; {_way_out(partition)}"
        )
    if offset.next > max(stream.until, 1):
        raise StreamMismatch(
            f"partition {partition}: the offset {offset.next} is beyond the stream, which ends before "
            f"{stream.until}: the stream was rewound or restored; {_way_out(partition)}"
        )
    if stream.witness and not _is_near(stream.witness, offset.last_time):
        raise StreamMismatch(
            f"partition {partition}: the message before the offset {offset.next} was stored at {stream.witness}, not at "
            f"{offset.last_time}: the stream was rewound or restored, and has grown since; {_way_out(partition)}"
        )
    return offset.next


def carried_over(offset: Offset | None, stream: StreamState, now: str) -> Offset | None:
    """Return the entry as it counts in a stream that was restored; any other as it is.

    As if moved by a person, who has asked for the restore: the files may be ahead of it, and are judged by their spans.
    """
    until = stream.in_common_with(offset.stream_created) if offset else None
    if offset is None or until is None:
        return offset
    # behind the end of the backup the same sequences are other lines
    carried = moved(offset, stream, min(offset.next, until), "logbroker restore", now)
    *before, beginning = carried.lineage
    return replace(carried, lineage=(*before, replace(beginning, restored=True)))


def has_witness(offset: Offset | None, stream: StreamState) -> bool:
    """Whether the stream still has the message that was committed last, by which a rewound one is told."""
    if offset is None or not offset.last_time or not offset.lineage:
        return False
    is_committed = offset.lineage[-1].next < offset.next and not offset.lineage[-1].by_hand
    return is_committed and stream.first < offset.next <= stream.until


def after(time: str) -> str:
    """Return a time (RFC 3339) at which what was stored at `time` is not stored any more, however entries round."""
    return (datetime.fromisoformat(time) + _ROUNDED).isoformat()


def _is_near(one: str, other: str) -> bool:
    try:
        apart = datetime.fromisoformat(one) - datetime.fromisoformat(other)
    except (ValueError, TypeError):
        return True  # that's fine: what is no time contradicts nothing
    return abs(apart) < _ROUNDED


def _way_out(partition: int) -> str:
    return (
        f"`logreceiver offsets reset --partition {partition}` begins with what the stream holds now, behind the lines "
        "that the files have"
    )


def claimed(
    offset: Offset | None,
    stream: StreamState,
    partition: int,
    owner: str,
    now: str,
    evidence: Evidence = _NOWHERE,
) -> Offset:
    """Return the entry of a new owner, who cannot be asked yet: the next epoch. Raises `StreamMismatch`, and `FilesMismatch` by the evidence."""
    last = evidence.last
    by_hand = offset is not None and offset.is_moved
    if words := _objection(evidence, by_hand=by_hand, partition=partition):
        raise FilesMismatch(f"partition {partition}: {words}")
    first = start(offset, stream, partition)
    if offset is None:
        if last is not None:
            raise FilesMismatch(_gone(last, evidence, partition))
        return Offset(
            first,
            1,
            stream.created,
            owner,
            committed_at=now,
            lineage=(Beginning(1, first, files=evidence.mark),),
        )
    known = _above(offset, last) if by_hand and last else offset
    epoch = known.epoch + 1
    claim = replace(
        known,
        epoch=epoch,
        owner=owner,
        presence="",
        released=False,
        committed_at=now,
        lineage=known.with_beginning(Beginning(epoch, first, files=evidence.mark)),
    )
    if last is not None and _are_older(last, claim.lineage, evidence.mark):
        raise FilesMismatch(_contradiction(offset, last, evidence, partition))
    match journal.decide(last, first, epoch, claim.lineage):
        case Verdict.CLEAN | Verdict.UNDO:
            return claim
        case Verdict.NEWER | Verdict.FOREIGN:
            assert last is not None, "what is not there contradicts nothing"
            raise FilesMismatch(_contradiction(offset, last, evidence, partition))


def _are_older(last: Batch, lineage: Sequence[Beginning], mark: str) -> bool:
    """Whether this very folder has received more than its files show, and no person has said since that this is right."""
    later = [one for one in lineage if one.epoch > last.epoch]
    by_hand = [number for number, one in enumerate(later) if one.by_hand]
    trusted = later[by_hand[-1] + 1 :] if by_hand else later
    return bool(mark) and any(
        one.files == mark and after.next > one.next for one, after in pairwise(trusted)
    )


def _above(offset: Offset, last: Batch) -> Offset:
    """Return an offset moved by hand in an epoch behind that of the files, whatever a lost bucket had counted."""
    epoch = max(offset.epoch, last.epoch + 1)
    moved_at = replace(offset.lineage[-1], epoch=epoch)
    return replace(offset, epoch=epoch, lineage=(*offset.lineage[:-1], moved_at))


def _objection(evidence: Evidence, *, by_hand: bool, partition: int) -> str:
    """Return why the folders cannot be written to, nothing if they can; an offset moved by hand speaks for them."""
    command = f"`logreceiver offsets set --partition {partition} --to SEQUENCE`"
    accept = (
        "or, if it is lost, look for lines that stand twice at the ends of the files, and accept them as they are by "
        f"{command}"
    )
    if evidence.damage:
        return f"{evidence.damage}; bring it back, or move it away and accept the files as they are by `logreceiver offsets set`"
    if by_hand:
        return ""
    match evidence.bond:
        case Bond.NEW | Bond.WHOLE:
            return ""
        case Bond.OTHER_OUTPUT:
            return (
                f"the journal in {evidence.state} belongs to files in another folder than {evidence.output}: is its disk "
                "mounted? give the right --output, or an empty --state-dir to begin new files there; if it is the right one, "
                f"accept the files as they are by {command}"
            )
        case Bond.OTHER_STATE:
            return (
                f"the files in {evidence.output} belong to a journal that is not in {evidence.state}: give the right "
                f"--state-dir, {accept}"
            )
        case Bond.NO_JOURNAL:
            return f"its journal is gone from {evidence.state}: bring it back, {accept}"


def _reached(last: Batch) -> int:
    return last.first if last.until is None else last.until


def _gone(last: Batch, evidence: Evidence, partition: int) -> str:
    return (
        f"partition {partition}: key {offset_key(partition)} of bucket {OFFSETS_BUCKET} is gone, but the files in "
        f"{evidence.output} were written up to sequence {_reached(last)}: {_behind(last, partition)}"
    )


def _contradiction(offset: Offset, last: Batch, evidence: Evidence, partition: int) -> str:
    reached = _reached(last)
    files = f"partition {partition}: the files in {evidence.output} were written up to sequence {reached}"
    if last.epoch > offset.epoch or offset.next < reached:
        return (
            f"{files} in epoch {last.epoch}, but the offset is {offset.next} in epoch {offset.epoch}: the bucket "
            f"{OFFSETS_BUCKET} was restored or made anew; {_behind(last, partition)}"
        )
    return (
        f"{files} by {evidence.state}/p{partition}.journal, but the offset is {offset.next}: that journal was cut, or both are "
        "older than the offset, restored from a backup or left on another machine; bring back the newer ones, or, if they are "
        f"lost, look for lines that stand twice at the ends of the files: {_behind(last, partition)}"
    )


def _behind(last: Batch, partition: int) -> str:
    return f"`logreceiver offsets set --partition {partition} --to {_reached(last)}` goes on behind the files"


def elsewhere(offset: Offset | None, evidence: Evidence) -> str:
    """Return what is to be said of lines that were received, but not into these folders; nothing if there are none."""
    if offset is None:
        return ""
    last = evidence.last
    if last is None:
        begins_here = evidence.bond is Bond.NEW and offset.lines > 0
        return f"files begin here at sequence {offset.next}" if begins_here else ""
    after = next((one for one in offset.lineage if one.epoch > last.epoch), None)
    if after is None or after.by_hand or offset.next <= _reached(last):
        return ""
    return f"files here leave out sequences {_reached(last)} to {offset.next - 1}"


def moved(offset: Offset | None, stream: StreamState, to: int, by: str, now: str) -> Offset:
    """Return the entry of an offset that a person moves: an epoch of its own, which stops whoever owns the partition.

    What the files have is judged by where the offset stood before; bytes that they have already are not written again.
    Of another stream the same sequences are other lines: what the files have cannot be read again, and stays.
    """
    if offset is None:
        beginning = Beginning(1, 0, by_hand=True, restored=True)  # of which stream nobody knows
        return Offset(to, 1, stream.created, by, committed_at=now, lineage=(beginning,))
    epoch = offset.epoch + 1
    is_other = offset.stream_created != stream.created
    beginning = Beginning(epoch, offset.next, by_hand=True, restored=is_other)
    return replace(
        offset,
        next=to,
        epoch=epoch,
        stream_created=stream.created,
        owner=by,
        presence="",
        released=False,
        clear_until=0,
        committed_at=now,
        lineage=offset.with_beginning(beginning),
    )
