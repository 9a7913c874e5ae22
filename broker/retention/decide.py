"""Decide which messages of a stream to purge. No I/O.

The oldest messages are purged first. They are selected by sequence: to purge by subject,
nats-server reads the whole stream. A purge begins when a stream reaches its high-water mark. It
ends at the low-water mark, or before the first message that a receiver or a durable consumer still
needs. If that is the very first message, nothing can be purged, and the stream's discard policy
applies: hosts wait (`new`), or nats-server drops the oldest lines (`old`).

`info` is the server's answer to STREAM.INFO. The head of the package lists the limits.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from broker.report import SpaceState
from nats_logship.wire.offset import Offset
from nats_logship.wire.streams import MAX_PAYLOAD

_HIGH_WATER, _LOW_WATER = 90, 80  # percent of max_bytes at most; low is 8/9 of high
_BYTES_BETWEEN_POLLS = 2 * MAX_PAYLOAD  # that hosts may publish
_OF_RECEIVERS = re.compile(r"receiver-p\d+")  # offsets say how far receivers are
_TIME_TOLERANCE = timedelta(milliseconds=5)  # offsets hold times in milliseconds
_FULL = {"new": SpaceState.HOSTS_WAIT, "old": SpaceState.LINES_DROPPED}


@dataclass(frozen=True, slots=True)
class Purge:
    """Messages to purge from the stream that was created at `created`: those below `until`.

    Only messages on subjects that match one of `filters`; no filter means all subjects. `messages`
    is their number. `needed_by` names who has not received all of them.
    """

    stream: str
    created: str
    until: int
    filters: tuple[str, ...] = ()
    messages: int = 0
    needed_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpaceDecision:
    """The state of a stream's space, and the sequence below which to purge; 0 purges nothing."""

    state: SpaceState
    until: int = 0
    needed_by: tuple[str, ...] = ()


def decide_purge(info: Mapping[str, Any], share: float, needs: Mapping[str, int]) -> SpaceDecision:
    """Return up to where to purge so that a stream loses about this share of its bytes.

    The share is applied to sequences, as if all messages had one size. `needs` has the first
    sequence that is still needed, by who needs it.
    """
    first, end = int(info["state"]["first_seq"]), int(info["state"]["last_seq"]) + 1
    until = min([first + math.ceil(share * (end - first)), *needs.values()])
    if until > first:
        return SpaceDecision(SpaceState.PURGING, until)
    oldest = sorted(name for name, sequence in needs.items() if sequence <= first)
    discard = info["config"].get("discard", "old")  # "old" is nats-server's own default
    return SpaceDecision(_FULL[discard], needed_by=tuple(oldest))


def compute_share(info: Mapping[str, Any], lacking: int = 0) -> float:
    """Return the share of a stream's bytes to purge, 0 to 1.

    It is 0 if the stream is below its high-water mark and the disk has space: `lacking` is the
    result of `compute_lacking_bytes`. The mark leaves space for the messages that
    hosts send until the next poll; so it is below 90 % if the limit is small.
    """
    held, limit = int(info["state"]["bytes"]), int(info["config"].get("max_bytes", -1))
    high = min(limit * _HIGH_WATER // 100, limit - min(_BYTES_BETWEEN_POLLS, limit // 2))
    over = held - high * _LOW_WATER // _HIGH_WATER if limit > 0 and held >= high else 0
    return min(max(lacking, over, 0) / held, 1.0) if held else 0.0


def compute_lacking_bytes(free: int, reserve: int) -> int:
    """Return `reserve - free` if `free` is below half of the reserve, else 0."""
    return reserve - free if free < reserve // 2 else 0


def find_consumer_needs(consumers: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the first sequence that each durable consumer of others has not acknowledged.

    `consumers` are answers to CONSUMER.INFO. Those of receivers are ignored.
    """
    found = {}
    for consumer in consumers:
        name, config = consumer["name"], consumer["config"]
        acknowledges = config.get("durable_name") and config.get("ack_policy", "none") != "none"
        is_behind = consumer.get("num_pending") or consumer.get("num_ack_pending")
        if acknowledges and is_behind and not _OF_RECEIVERS.fullmatch(name):
            found[f"consumer {name}"] = int(consumer["ack_floor"]["stream_seq"]) + 1
    return found


def belongs_to_stream(offset: Offset, info: Mapping[str, Any]) -> bool:
    """Whether a receiver has committed this offset in this stream: only then may a purge use it.

    An offset that a person has moved, and that no receiver has used since, belongs to no stream.
    """
    if offset.moved_in or not offset.last_time or offset.stream_created != info["created"]:
        return False
    return offset.next <= int(info["state"]["last_seq"]) + 1


def ends_at(offset: Offset, stored_at: int | None) -> bool:
    """Whether the message just below the offset is the one that was committed last.

    If not, the offset does not say which messages are received, and a purge must not use it: a
    stream that lost its end assigns the same sequences again, to other messages. `stored_at` is
    in nanoseconds since the epoch; None if the message is purged already, as most are.
    """
    if stored_at is None:
        return True
    apart = timedelta(microseconds=(stored_at - offset.stored_at) // 1000)
    return abs(apart) < _TIME_TOLERANCE
