"""What a check has found out: a line each. Values."""

from dataclasses import dataclass
from enum import Enum

from broker.app.printable import printable

__all__ = ["Finding", "Mark", "bad", "fine", "left_out"]


class Mark(Enum):
    """What a finding means for the agent; the values are what stands before it."""

    FINE = "ok "
    LEFT_OUT = "-- "
    BAD = "BAD"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    mark: Mark
    text: str

    def __str__(self) -> str:
        """Return the line, whatever stands in the paths that it names."""
        return f"{self.mark.value} {printable(self.text)}"


def fine(text: str) -> Finding:
    """Return what the agent can work with."""
    return Finding(Mark.FINE, text)


def left_out(text: str) -> Finding:
    """Return what it will pass over, as it was told to."""
    return Finding(Mark.LEFT_OUT, text)


def bad(text: str) -> Finding:
    """Return what someone must mend."""
    return Finding(Mark.BAD, text)
