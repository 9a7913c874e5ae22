"""How much of a stream has to go, by its limits and by the disk. Decides only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.wire.streams import MAX_PAYLOAD

__all__ = ["Disk", "Water", "excess", "is_near"]

_ROUND_BYTES = 2 * MAX_PAYLOAD  # what a host or two may publish between two looks
_ROUND_MESSAGES = 2000


@dataclass(frozen=True, slots=True)
class Water:
    """The high-water and the low-water mark, in percent of a stream's limits."""

    high: int = 90
    low: int = 80


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


def excess(info: Mapping[str, Any], water: Water, missing: int = 0) -> float:
    """Return the share of a stream that has to go, from 0 to 1: 0 below the high-water mark, else down to the low-water mark.

    `info` is the answer to STREAM.INFO, `missing` how many bytes the disk has less than it should.
    """
    state, config = info["state"], info["config"]
    held = int(state["bytes"])
    shares = (
        _above(held, int(config.get("max_bytes", -1)), _ROUND_BYTES, water),
        _above(int(state["messages"]), int(config.get("max_msgs", -1)), _ROUND_MESSAGES, water),
        missing / held if held else 0.0,
    )
    return min(max(shares), 1.0)


def is_near(info: Mapping[str, Any], water: Water) -> bool:
    """Whether a stream is above its low-water mark, so that it may soon be above the other one."""
    return excess(info, Water(water.low, water.low - 1)) > 0


def _above(held: int, limit: int, round_: int, water: Water) -> float:
    """Return the share of `held` to remove.

    Below a small limit the high-water mark leaves space for a round: a round that is refused whole would wait for ever.
    """
    if limit <= 0:
        return 0.0
    high = min(limit * water.high // 100, limit - min(round_, limit // 2))
    if held < high:
        return 0.0
    return (held - high * water.low // water.high) / held if held else 0.0
