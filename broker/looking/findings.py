"""What a check finds: a grade with a reason, and numbers with their limits, as monitoring systems know them. Values only."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

__all__ = ["Check", "Finding", "Gauge", "Grade", "Limit", "Unit", "Verdict", "and_more", "overall"]


class Check(Enum):
    """What can be checked; all of it, unless some are named."""

    CONNECTION = "connection"
    STREAM = "stream"
    LAG = "lag"
    STORE = "store"
    REPLICAS = "replicas"
    HOSTS = "hosts"
    CERTIFICATES = "certificates"
    ROOM = "room"


class Grade(IntEnum):
    """How it is, and the exit code that says so (Nagios)."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class Unit(Enum):
    """What a number counts, as performance data of Nagios names it."""

    NUMBER = ""
    SECONDS = "s"
    BYTES = "B"
    PERCENT = "%"


@dataclass(frozen=True, slots=True)
class Limit:
    """From where on, inclusive, something is a warning, and from where on critical; None for never."""

    warn: float | None = None
    critical: float | None = None

    def grade(self, value: float) -> Grade:
        """Return how a value is that should be low."""
        if self.critical is not None and value >= self.critical:
            return Grade.CRITICAL
        return Grade.WARNING if self.warn is not None and value >= self.warn else Grade.OK

    def grade_of_rest(self, value: float) -> Grade:
        """Return how a value is that should be high, such as the time that is left."""
        if self.critical is not None and value <= self.critical:
            return Grade.CRITICAL
        return Grade.WARNING if self.warn is not None and value <= self.warn else Grade.OK


@dataclass(frozen=True, slots=True)
class Finding:
    """A grade and its reason, one line."""

    grade: Grade
    text: str


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number; `of` says of which partition, server or certificate, empty for the whole."""

    name: str
    value: float
    help: str
    unit: Unit = Unit.NUMBER
    limit: Limit = Limit()
    label: str = ""
    of: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check has found; `absent` says why there is nothing to check, and is empty where there is."""

    check: Check
    findings: tuple[Finding, ...] = ()
    gauges: tuple[Gauge, ...] = ()
    absent: str = ""

    @property
    def grade(self) -> Grade:
        """The worst of its findings."""
        return overall(finding.grade for finding in self.findings)


_BADNESS = (Grade.OK, Grade.UNKNOWN, Grade.WARNING, Grade.CRITICAL)


def overall(grades: Iterable[Grade]) -> Grade:
    """Return the worst of some grades, OK for none; what is not known hides nothing that is."""
    return max(grades, key=_BADNESS.index, default=Grade.OK)


def and_more(rest: Sequence[Finding], noun: str) -> Iterator[Finding]:
    """Yield one finding for all those that are not named, as bad as the worst of them; none for none."""
    if rest:
        yield Finding(overall(finding.grade for finding in rest), f"and {len(rest)} more {noun}")
