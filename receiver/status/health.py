"""Whether a receiver is well: what was seen of it in, what ails it out. Decides; looks at nothing."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Vitals", "ailment"]

_LONG = 60.0  # seconds; what is blocked for less may come right by itself


@dataclass(frozen=True, slots=True)
class Vitals:
    """What was seen of a receiver.

    What it waits for, whether each partition is claimed or waited for, what is blocked for how many seconds, and which
    partitions another receiver has taken over.
    """

    waiting_for: str
    is_following: bool
    blocked: tuple[tuple[int, str, float], ...] = ()
    lost: tuple[tuple[int, str], ...] = ()


def ailment(seen: Vitals) -> str:
    """Return why the receiver does not receive everything; empty when it is well."""
    if seen.waiting_for:
        return f"waiting for the broker: {seen.waiting_for}"
    if not seen.is_following:
        return "starting"
    return "; ".join((*_lost(seen.lost), *_blocked(seen.blocked)))


def _lost(lost: Iterable[tuple[int, str]]) -> Iterable[str]:
    for partition, successor in lost:
        yield (
            f"partition {partition} was taken over by {successor}: only one receiver may own it, so start this one "
            "without it, or end the other and start this one again"
        )


def _blocked(blocked: Iterable[tuple[int, str, float]]) -> Iterable[str]:
    for partition, detail, seconds in blocked:
        if seconds >= _LONG:
            yield f"partition {partition} is blocked for {seconds:.0f} s: {detail}"
