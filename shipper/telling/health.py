"""Whether an agent is well: what was seen of it in, what ails it out. Decides; looks at nothing."""

from dataclasses import dataclass

__all__ = ["Vitals", "ailment"]

_LONG = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Vitals:
    """What was seen of an agent; `unacknowledged` is the age in seconds of what was read and is not acknowledged yet.

    `is_moving` says that no reading hangs, `is_following` that the start is over. `trouble` is why
    standard input cannot be written to disk.
    """

    is_moving: bool
    is_following: bool
    waiting_for: str
    unacknowledged: float | None
    trouble: str = ""


def ailment(seen: Vitals) -> str:
    """Return why the agent does not ship, or will not for long; empty when it is well."""
    if not seen.is_moving:
        return "a file or a folder does not let itself be read; its file system may be gone"
    if seen.trouble:
        return seen.trouble
    if seen.waiting_for:
        return f"waiting for the broker: {seen.waiting_for}"
    if not seen.is_following:
        return "starting: the positions are being read back"
    if seen.unacknowledged is not None and seen.unacknowledged > _LONG:
        return f"nothing was acknowledged for {seen.unacknowledged:.0f} s although there is something to ship"
    return ""
