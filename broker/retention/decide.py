"""Decide which messages of a stream to purge. Values only.

A stream is purged by sequence, the oldest messages first, since nats-server reads the whole stream
to purge by subject. A purge begins when the stream reaches its high-water mark and ends at its
low-water mark, or at the first message that a receiver or a durable consumer still needs. If the
very first message is needed, the stream's discard policy decides: hosts wait (`new`) or nats-server
drops the oldest lines (`old`).

`info` is the server's answer to STREAM.INFO.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from broker.inspect.message import StoredMessage
from broker.report import SpaceState
from nats_logship.wire.offset import Offset
from nats_logship.wire.streams import MAX_PAYLOAD

_HIGH_WATER, _LOW_WATER = 90, 80  # percent of max_bytes
_ROUND_BYTES = 2 * MAX_PAYLOAD  # what hosts may publish before the next poll
_OUR_CONSUMERS = re.compile(r"receiver-p\d+|shipper-.+|wake-p\d+-.+")
_ROUNDING = timedelta(milliseconds=5)  # offsets hold times in milliseconds
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


def decide(info: Mapping[str, Any], share: float, needs: Mapping[str, int]) -> SpaceDecision:
    """Return what to do so that a stream loses about a share of its messages.

    `needs` holds the first sequence that is still needed, by who needs it.
    """
    first, end = int(info["state"]["first_seq"]), int(info["state"]["last_seq"]) + 1
    until = min([first + math.ceil(share * (end - first)), *needs.values()])
    if until > first:
        return SpaceDecision(SpaceState.PURGING, until)
    oldest = sorted(name for name, sequence in needs.items() if sequence <= first)
    return SpaceDecision(_FULL[info["config"].get("discard", "old")], needed_by=tuple(oldest))


def compute_share(info: Mapping[str, Any], missing: int = 0) -> float:
    """Return the share of a stream to purge, 0 to 1: 0 below the high-water mark.

    `missing` is how many bytes of free space the disk lacks. A small limit has a lower high-water
    mark, with space for a round: a round that nats-server refuses would wait for ever.
    """
    held, limit = int(info["state"]["bytes"]), int(info["config"].get("max_bytes", -1))
    high = min(limit * _HIGH_WATER // 100, limit - min(_ROUND_BYTES, limit // 2))
    over = held - high * _LOW_WATER // _HIGH_WATER if limit > 0 and held >= high else 0
    return min(max(missing, over, 0) / held, 1.0) if held else 0.0


def compute_missing(free: int, reserve: int) -> int:
    """Return how many bytes of the reserve are used up, once that is more than half of it."""
    return reserve - free if free < reserve // 2 else 0


def find_consumer_needs(consumers: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the first sequence that each durable consumer of others has not acknowledged.

    `consumers` are answers to CONSUMER.INFO. A consumer with a name of ours keeps nothing: a host
    may create one.
    """
    found = {}
    for consumer in consumers:
        name, config = consumer["name"], consumer["config"]
        acknowledges = config.get("durable_name") and config.get("ack_policy", "none") != "none"
        is_behind = consumer.get("num_pending") or consumer.get("num_ack_pending")
        if acknowledges and is_behind and not _OUR_CONSUMERS.fullmatch(name):
            found[f"consumer {name}"] = int(consumer["ack_floor"]["stream_seq"]) + 1
    return found


def belongs_to_stream(offset: Offset, info: Mapping[str, Any]) -> bool:
    """Whether a receiver has committed this offset in this stream.

    An offset that a person has moved, and that no receiver has used since, belongs to no stream.
    """
    if offset.moved_in or not offset.last_time or offset.stream_created != info["created"]:
        return False
    return offset.next <= int(info["state"]["last_seq"]) + 1


def ends_at(offset: Offset, last: StoredMessage | None) -> bool:
    """Whether `last`, the message just below the offset, is the one that was committed last.

    A stream that lost its end assigns the same sequences again, to other messages. None means that
    the message is purged already, as most committed messages are.
    """
    if last is None:
        return True
    apart = timedelta(microseconds=(last.stored_at - offset.stored_at) // 1000)
    return abs(apart) < _ROUNDING
