"""How much of a stream has to go, by its limits and by the disk, and which limit a stream has while the disk is short. Decides only.

A disk that is full stops nats-server's streams; a limit that is reached is a clean refusal, and hosts wait. So while the disk is
short, whoever fills it, a stream's limit is held down to what the stream holds, and given back after. The limit from before is
noted in the stream's metadata: whoever dies here, or leads no more, leaves the note to the next one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.topology import is_computed
from broker.wire.streams import MAX_PAYLOAD

__all__ = ["Disk", "asked_for", "excess", "is_near", "limit_for", "without_note"]

_HIGH, _LOW = 90, 80  # percent of a limit: from when on, and down to which, messages are purged
_ROUND_BYTES = 2 * MAX_PAYLOAD  # what a host or two may publish between two looks
_ROUND_MESSAGES = 2000
_NOTE = "logship.held_down"
_NOTED = re.compile(r"(-?[0-9]{1,19}) (-?[0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of the store, in bytes: how much is free, and how much is to stay free."""

    free: int
    reserve: int

    @property
    def is_short(self) -> bool:
        """Whether half of the reserve is used up."""
        return self.free < self.reserve // 2

    @property
    def is_well(self) -> bool:
        """Whether all of the reserve is free."""
        return self.free >= self.reserve


def excess(info: Mapping[str, Any], missing: int = 0) -> float:
    """Return the share of a stream that has to go, from 0 to 1: 0 below the high-water mark, else down to the low-water mark.

    `info` is the answer to STREAM.INFO, `missing` how many bytes the disk has less than it should.
    """
    held = int(info["state"]["bytes"])
    shares = [_above(*limit, _HIGH) for limit in _limits(info)]
    return min(max(*shares, missing / held if held else 0.0), 1.0)


def is_near(info: Mapping[str, Any]) -> bool:
    """Whether a stream is above its low-water mark, so that it may soon be above the other one."""
    return any(_above(*limit, _LOW) for limit in _limits(info))


def _limits(info: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    """Return what a stream holds, its limit (-1 for none), and what comes at a time: of bytes, and of messages."""
    state, config = info["state"], info["config"]
    return [
        (int(state["bytes"]), int(config.get("max_bytes", -1)), _ROUND_BYTES),
        (int(state["messages"]), int(config.get("max_msgs", -1)), _ROUND_MESSAGES),
    ]


def _above(held: int, limit: int, round_: int, mark: int) -> float:
    """Return the share of `held` to remove, where it is above a mark in percent of the limit.

    Below a small limit the mark leaves space for a round: a round that is refused whole would wait for ever.
    """
    if limit <= 0 or held <= 0:
        return 0.0
    high = min(limit * mark // 100, limit - min(round_, limit // 2))
    return (held - high * _LOW // _HIGH) / held if held >= high else 0.0


@dataclass(frozen=True, slots=True)
class _Limit:
    """The limit in bytes, -1 for none, and what it was before it was held down; None while it is not."""

    now: int
    before: int | None = None


def limit_for(info: Mapping[str, Any], disk: Disk | None) -> dict[str, Any] | None:
    """Return a stream's configuration with the limit that it should have, None where it has that; `info` as of STREAM.INFO."""
    config = info["config"]
    limit = _limit(config)
    wanted = limit
    if disk is None or config.get("discard") != "new" or disk.is_well:
        wanted = limit if limit.before is None else _Limit(limit.before)
    elif disk.is_short:
        before = limit.now if limit.before is None else limit.before
        held = max(int(info["state"]["bytes"]), 1)
        wanted = _Limit(min(held, before) if before > 0 else held, before)
    return None if wanted == limit else _with(config, wanted)


def asked_for(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a person asked for of a stream's configuration: no limit that is held down, and none that was computed."""
    asked = without_note(config)
    if is_computed(asked):
        del asked["max_bytes"]
    return asked


def without_note(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stream's configuration with the limit that it has while the disk is not short."""
    limit = _limit(config)
    return _with(config, _Limit(limit.now if limit.before is None else limit.before))


def _limit(config: Mapping[str, Any]) -> _Limit:
    """Return the limit of a configuration; a note for another limit than it has was left behind by a person's change."""
    now = int(config.get("max_bytes", -1))
    found = _NOTED.fullmatch(str((config.get("metadata") or {}).get(_NOTE)))
    return _Limit(now, int(found[2])) if found and int(found[1]) == now else _Limit(now)


def _with(config: Mapping[str, Any], limit: _Limit) -> dict[str, Any]:
    metadata = {
        name: text for name, text in (config.get("metadata") or {}).items() if name != _NOTE
    }
    if limit.before is not None:
        metadata[_NOTE] = f"{limit.now} {limit.before}"
    return {**config, "max_bytes": limit.now, "metadata": metadata}
