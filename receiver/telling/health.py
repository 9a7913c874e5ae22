"""Whether a receiver is well: what was seen of it in, what ails it out. Decides; looks at nothing."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Vitals", "ailment"]

_LONG = 60.0  # seconds; what is blocked for less may come right by itself


@dataclass(frozen=True, slots=True)
class Vitals:
    """What was seen: what it waits for, whether it has claimed its partitions, and what is blocked for how many seconds."""

    waiting_for: str
    is_following: bool
    blocked: tuple[tuple[int, str, float], ...] = ()


def ailment(seen: Vitals) -> str:
    """Return why the receiver does not receive everything; empty when it is well."""
    if seen.waiting_for:
        return f"waiting for the broker: {seen.waiting_for}"
    if not seen.is_following:
        return "starting"
    return "; ".join(_blocked(seen.blocked))


def _blocked(blocked: Iterable[tuple[int, str, float]]) -> Iterable[str]:
    for partition, detail, seconds in blocked:
        if seconds >= _LONG:
            yield f"partition {partition} is blocked for {seconds:.0f} s: {detail}"
