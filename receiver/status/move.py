"""Moves an offset by hand: says first what the move would mean, and writes only over the offset that was looked at."""

import getpass
import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.units import read_moment
from broker.client import bucket
from broker.client.bucket import Conflict
from broker.client.connection import Connection
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import OFFSETS_BUCKET, offset_key
from receiver.consume import offsets
from receiver.consume.claim import stream_state
from receiver.consume.offsets import StreamState
from receiver.driver.presence import is_gone
from receiver.source.planning import sequence_at
from receiver.status.status import waiting

__all__ = ["Move", "carry_out", "propose"]


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a partition's offset from the entry at `revision`, to be carried out or not."""

    partition: int
    revision: int
    moved: Offset
    words: str
    """What it means, in messages."""
    objection: str
    """Why it should not be done now; empty if nothing speaks against it."""


async def propose(
    connection: Connection, name: str, partition: int, to: str, now: datetime
) -> Move:
    """Return what moving the offset of a partition in a stream would mean; raises ConfigurationError for a `to` that names none.

    Raises `Rejected`, `ConnectionLost`.
    """
    stream = await stream_state(connection, name)
    sequence = await _sequence_of(connection, stream, to, now)
    entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
    offset, is_present = await _last_known(connection, partition, entry)
    # where the partition was since an older offset is not known: its files are accepted as they are
    before = offset
    if offset and not is_present:
        before = replace(offset, next=0, committed_in=0, moved_in=0)
    by = f"{getpass.getuser()}@{socket.gethostname()} by hand"
    stamp = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    asked = offset.presence if offset and not offset.is_moved else ""
    objection = ""
    if offset and asked and not await is_gone(connection, asked):
        objection = f"receiver {offset.owner} is running there; end it first, or stop it by moving the offset with --force"
    left = await waiting(connection, name, partition, sequence)
    begins = f"it goes on at sequence {sequence}, {left} messages wait from there"
    if offset is None or offset.stream_created != stream.created:
        meaning = "no offset of this stream is known"
    else:
        more = left - await waiting(connection, name, partition, offset.next)
        meaning = _meaning(offset.next, sequence, more)
    return Move(
        partition,
        entry.revision if entry else 0,
        offsets.moved(before, stream, sequence, by, stamp),
        f"{meaning}; {begins}",
        objection,
    )


async def _sequence_of(connection: Connection, stream: StreamState, to: str, now: datetime) -> int:
    """Return the sequence of a stream that `to` names; raises ConfigurationError for what is none, or not in the stream."""
    first, until = max(stream.first, 1), max(stream.until, 1)
    if to in {"earliest", "latest"}:
        return first if to == "earliest" else until
    try:
        moment = read_moment(to, now)
    except ValueError as error:
        raise ConfigurationError(f"--to: {error}, or latest") from None
    if isinstance(moment, datetime):
        if moment > now:
            raise ConfigurationError(
                f"--to {to}: that time is still to come; latest skips what is there"
            )
        found = await sequence_at(connection, stream.name, moment)
        return until if found is None else min(found, until)
    if not 1 <= moment <= until:
        raise ConfigurationError(
            f"--to {to}: stream {stream.name} holds sequences {first} to {until - 1}, so give 1 to {until}, earliest or latest"
        )
    return moment


async def _last_known(
    connection: Connection, partition: int, entry: bucket.Entry | None
) -> tuple[Offset | None, bool]:
    """Return the newest offset that can be read, and whether that is the present one."""
    if entry:
        with suppress(UnreadableOffset):
            return Offset.decode(entry.value), True
    revisions = await bucket.history(connection, OFFSETS_BUCKET, offset_key(partition))
    for revision in reversed(revisions):
        with suppress(UnreadableOffset):
            return Offset.decode(revision.value), False
    return None, False


def _meaning(now: int, sequence: int, more: int) -> str:
    if sequence < now:
        return (
            f"from sequence {now} back to {sequence}: {more} messages are read again; what shippers sent and the files "
            "have is not written again, lines of plain NATS clients are"
        )
    if sequence > now:
        return f"from sequence {now} on to {sequence}: {-more} messages are SKIPPED"
    return f"it stays at sequence {sequence}; the files are accepted as they are"


async def carry_out(connection: Connection, move: Move) -> None:
    """Write it; raises OperatorError when the entry has changed since, `Rejected`, `ConnectionLost`."""
    key, value = offset_key(move.partition), move.moved.encode()
    try:
        await bucket.write(connection, OFFSETS_BUCKET, key, value, move.revision)
    except Conflict:
        raise OperatorError(
            f"partition {move.partition}: its offset has changed meanwhile, so a receiver is running there; look again"
        ) from None
