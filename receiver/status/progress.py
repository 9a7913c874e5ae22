"""How far a receiver that is behind has come: rate, what is left, and when it will have caught up. Decides; writes nothing."""

from dataclasses import dataclass
from datetime import timedelta

from broker.app.durations import format_duration
from broker.app.sizes import format_size

__all__ = ["CatchingUp", "Glance", "bar", "progress", "sentence"]

_BEHIND = 10.0  # seconds of lag from which a receiver counts as catching up
_LEAST_SPAN = 1.0  # seconds between two glances that say something about a rate


@dataclass(frozen=True, slots=True)
class Glance:
    """What was seen at `at` (seconds): messages waiting, those received so far, bytes of lines so far, lag in seconds."""

    at: float
    pending: int
    messages: int
    bytes: int
    lag: float

    @property
    def is_behind(self) -> bool:
        """Whether there is enough to catch up with to tell of it."""
        return self.pending > 0 and self.lag >= _BEHIND


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """Progress between two glances; rates per second, `left` in messages, `eta` in seconds, None when it falls behind.

    `share` is how much of what there was and has come since is received, from 0 to 1.
    """

    share: float
    bytes_rate: float
    messages_rate: float
    left: int
    lag: float
    eta: float | None


def progress(began: Glance, before: Glance, now: Glance) -> CatchingUp:
    """Judge progress: the share since it `began`, rates since the glance `before`."""
    span = max(now.at - before.at, _LEAST_SPAN)
    closing = (before.pending - now.pending) / span
    done = now.messages - began.messages
    return CatchingUp(
        share=done / max(done + now.pending, 1),
        bytes_rate=(now.bytes - before.bytes) / span,
        messages_rate=(now.messages - before.messages) / span,
        left=now.pending,
        lag=now.lag,
        eta=now.pending / closing if closing > 0 else None,
    )


def sentence(seen: CatchingUp) -> str:
    """Say it for a log."""
    return (
        f"catching up: {seen.share:.0%}, {seen.left:,} messages left, {_age(seen.lag)} behind, "
        f"{format_size(int(seen.bytes_rate))}/s, {_eta(seen)}"
    )


def bar(seen: CatchingUp, width: int) -> str:
    """Draw it for a terminal of `width` columns."""
    words = f" {seen.share:4.0%}  {format_size(int(seen.bytes_rate))}/s  {_age(seen.lag)} behind  {_eta(seen)}"
    room = max(width - len(words) - 3, 0)
    filled = int(room * seen.share)
    drawn = f"[{'#' * filled}{'.' * (room - filled)}]" if room >= 5 else ""
    return f"{drawn}{words}"[: max(width - 1, 0)]


def _eta(seen: CatchingUp) -> str:
    return "falling behind" if seen.eta is None else f"ready in {_age(seen.eta)}"


def _age(seconds: float) -> str:
    return format_duration(timedelta(seconds=round(seconds)))
