"""Which part of each stream a range of time is; times are in nanoseconds since the epoch."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from math import ceil

from broker.inspect.streams import list_streams
from nats_logship.app.timestamps import (
    EARLIEST,
    LATEST,
    SECOND,
    Moment,
    to_datetime,
    to_nanoseconds,
)
from nats_logship.client.connection import ELECTION, Connection, retry_until_answered
from nats_logship.client.find import find_message, resolve_moment
from nats_logship.client.found_lines import OpenRecords
from nats_logship.client.stream_state import StreamState, get_stream_state
from nats_logship.wire.stream_message import StreamMessage

_HOURS = (3600 * hours for hours in (1, 2, 3, 6, 12, 24))
_SEQUENCE = re.compile("[0-9]{1,19}")
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, *_HOURS)


@dataclass(slots=True)
class StreamRange:
    """The sequences `[first, until)` of a stream that are still to be searched.

    `opened` are records that go on in these. Those that go on behind them are found in pieces; but
    what was stored at `waits_from` or later is kept for the next range.
    """

    state: StreamState
    first: int
    until: int
    opened: OpenRecords = field(default_factory=OpenRecords)
    waits_from: int | None = None

    @property
    def size(self) -> int:
        """About how many bytes that is, as stored."""
        held = self.state.until - self.state.first
        return self.state.size * max(0, self.until - self.first) // max(1, held)


def choose_step(length: int, parts: int) -> int:
    """Return the length of a part of a time, of which there are then about so many."""
    seconds = length / SECOND / max(1, parts)
    return next((one for one in _STEPS if one >= seconds), ceil(seconds)) * SECOND


def check_is_held(states: Sequence[StreamState], *moments: Moment | None) -> None:
    """Raise ValueError for a sequence that is older than the streams."""
    first = min((one.first for one in states), default=0)
    for moment in moments:
        if isinstance(moment, int) and 0 < moment < first:
            raise ValueError(f"sequence {moment} is no longer in the stream: give a time")


async def read_states(connection: Connection) -> list[StreamState]:
    """Return the states of all streams; raises `ConnectionLost`, `Rejected`."""
    ask = partial(retry_until_answered, connection, patience=ELECTION)
    names = await ask(list_streams)
    return [await ask(partial(get_stream_state, name=name)) for name in names]


def format_position(states: Sequence[StreamState]) -> str:
    """Write the ends of streams, from where `move_to` follows them later."""
    return " ".join(f"{one.key}:{one.until}" for one in states)


def move_to(position: str, states: Sequence[StreamState]) -> list[StreamState]:
    """Return the states of streams as of a position; a stream that is not in it was empty then.

    Raises ValueError for what is no position.
    """
    parts = [one.rpartition(":") for one in position.split()]
    if not all(_SEQUENCE.fullmatch(sequence) for _, _, sequence in parts):
        raise ValueError(f"{position[:200]!r} is no position")
    known = {key: int(sequence) for key, _, sequence in parts}
    return [replace(one, until=known.get(one.key, one.first)) for one in states]


async def find_time(
    connection: Connection, states: Sequence[StreamState], moment: Moment | None
) -> int | None:
    """Return the time of a moment, at most what 64 bits hold, as tables have it.

    For a sequence that of its message; 0 for the earliest, None beyond the end of all streams.
    """
    if moment == EARLIEST:
        return 0
    if isinstance(moment, datetime):
        return min(max(0, to_nanoseconds(moment)), LATEST)
    for state in states if moment else ():
        if found := await _find_at(connection, state, moment or 0):
            return found.stored_at
    return None


async def find_first_time(connection: Connection, ranges: Sequence[StreamRange]) -> int | None:
    """Return the time of the oldest message of some ranges, None without one."""
    left = [one for one in ranges if one.first < one.until]
    found = [await _find_at(connection, one.state, one.first) for one in left]
    return min((one.stored_at for one in found if one), default=None)


async def find_range(
    connection: Connection, state: StreamState, since: int | None, until: int | None
) -> StreamRange:
    """Return the messages of a stream that were stored in `[since, until)`; None is no bound."""
    ends = []
    for time, default in ((since, EARLIEST), (until, LATEST)):
        moment = default if time is None else to_datetime(time)
        ends.append(await resolve_moment(connection, moment, state))
    return StreamRange(state, max(state.first, ends[0]), ends[1])


async def _find_at(
    connection: Connection, state: StreamState, sequence: int
) -> StreamMessage | None:
    request = {"seq": max(1, sequence), "next_by_subj": ">"}
    return await find_message(connection, state.name, request)
