"""When space runs short, and how much must go: the stream's own count held against its limits. Decides only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.wire.streams import MAX_PAYLOAD

__all__ = ["Amount", "Bounds", "Marks", "Shortage", "limit_of", "look_again_after", "shortage"]

_ROUND_BYTES = 2 * MAX_PAYLOAD  # what the rounds of a host or two may bring between two looks
_ROUND_MESSAGES = 2000
_SOON, _OFTEN, _SELDOM = 0.1, 0.5, 2.0  # seconds


@dataclass(frozen=True, slots=True)
class Amount:
    """So much of a stream, in bytes as the server counts them and in messages."""

    size: int = 0
    messages: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        """Return both together."""
        return Amount(self.size + other.size, self.messages + other.messages)

    def covers(self, other: "Amount") -> bool:
        """Whether neither number is below the other's."""
        return self.size >= other.size and self.messages >= other.messages

    @classmethod
    def held(cls, info: Mapping[str, Any]) -> "Amount":
        """Return what a stream holds, by what STREAM.INFO tells of it."""
        return cls(int(info["state"]["bytes"]), int(info["state"]["messages"]))


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a stream may hold, in bytes and messages; None for no limit."""

    size: int | None = None
    messages: int | None = None

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> "Bounds":
        """Return the limits of a stream, by what STREAM.INFO tells of it."""
        config = info["config"]
        return cls(limit_of(config.get("max_bytes", -1)), limit_of(config.get("max_msgs", -1)))


def limit_of(number: int) -> int | None:
    """Return a limit as the server's configuration has it; None for none."""
    return number if number > 0 else None


@dataclass(frozen=True, slots=True)
class Marks:
    """High and low water, in percent of the limits."""

    high: int = 90
    low: int = 80


@dataclass(frozen=True, slots=True)
class Shortage:
    """How much must go for the stream to stand at its low mark, and how much for it to stand just below its high one."""

    to_low: Amount
    to_high: Amount

    def __bool__(self) -> bool:
        """Whether anything must go."""
        return bool(self.to_high.size or self.to_high.messages)

    def at_least(self, size: int) -> "Shortage":
        """Return this, or as many bytes where that is more."""
        low, high = (
            Amount(max(one.size, size), one.messages) for one in (self.to_low, self.to_high)
        )
        return Shortage(low, high)


def shortage(held: Amount, bounds: Bounds, marks: Marks) -> Shortage:
    """Return what must go.

    Below small limits the high mark leaves room for a round of lines: it could come whole or not at all, and wait for
    ever at a stream that stands a little below its percentage.
    """
    size = _missing(held.size, bounds.size, marks, _ROUND_BYTES)
    messages = _missing(held.messages, bounds.messages, marks, _ROUND_MESSAGES)
    return Shortage(Amount(size[0], messages[0]), Amount(size[1], messages[1]))


def _missing(held: int, bound: int | None, marks: Marks, round_: int) -> tuple[int, int]:
    if bound is None:
        return 0, 0
    high = min(bound * marks.high // 100, bound - min(round_, bound // 2))
    if held < high:
        return 0, 0
    low = high * marks.low // marks.high
    # a hundredth below the mark, so that what is dropped goes in some steps and not message by message
    return max(held - low, 1), max(held - high + bound // 100, 1)


def look_again_after(held: Amount, bounds: Bounds, marks: Marks) -> float:
    """Return the seconds until the next look at a stream that has room: the fuller, the fewer."""
    parts = [
        now / most
        for now, most in ((held.size, bounds.size), (held.messages, bounds.messages))
        if most
    ]
    fullest = max(parts, default=0.0)
    if fullest >= marks.low / 200:
        return _SOON if fullest >= marks.low / 100 else _OFTEN
    return _SELDOM if fullest < marks.low / 400 else 2 * _OFTEN
