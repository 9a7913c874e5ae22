"""What was set out to be reached, and what was found of it in the kept results. A core: made of the records alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.field.catalogue import OURS
from bench.result import Record, Result, compared
from bench.resulttext import number

__all__ = ["Goal", "goals", "told"]

_BACKLOGS = ("400 MB", "2,000 MB")
_FLAT = (*_BACKLOGS, "8,000 MB")
_HOSTS = ("5,000", "5")


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that was to be at least, or at most, a bound; `found` is None where it was not measured, by `command`."""

    about: str
    bound: float
    found: float | None
    is_most: bool = False
    command: str = "drain"

    @property
    def verdict(self) -> str:
        """Whether it was reached, or by how much it was missed."""
        if self.found is None:
            return "not measured"
        if (self.found <= self.bound) if self.is_most else (self.found >= self.bound):
            return "reached"
        return f"missed by {abs(self.found / self.bound - 1):.0%}"


def goals(records: Iterable[Record]) -> list[Goal]:
    """Return every goal, with what was found of it."""
    found = {
        (record.command, one.case, one.system): one
        for record in records
        for one in record.results
        if not one.void
    }

    def ours(command: str, case: str, figure: str) -> float | None:
        return _median(found.get((command, case, OURS)), figure)

    def to(other: str, case: str, figure: str) -> float | None:
        pair = [found.get(("drain", case, name)) for name in (OURS, other)]
        return _ratio(pair, figure)

    return [
        *(
            goal
            for case in _BACKLOGS
            for goal in (
                Goal(f"{case}: MB/s, to Fluent Bit's", 3, to("fluent-bit", case, "MB/s")),
                Goal(f"{case}: MB/s, to rsyslog's", 6, to("rsyslog", case, "MB/s")),
                Goal(
                    f"{case}: CPU s/GB, to Fluent Bit's",
                    *(0.5, to("fluent-bit", case, "CPU s/GB")),
                    is_most=True,
                ),
            )
        ),
        Goal(
            "5,000 lines/s: p99 ms",
            *(300, ours("steady", "5,000 lines/s", "p99 ms")),
            is_most=True,
            command="steady",
        ),
        Goal(
            f"CPU s/GB of {', '.join(_FLAT)}: most to least",
            *(1.1, _apart([ours("drain", case, "CPU s/GB") for case in _FLAT])),
            is_most=True,
        ),
        *(
            Goal(
                f"{figure} of 5,000 hosts, to 5",
                *(1.5, _quotient(*(ours("hosts", f"{count} hosts", figure) for count in _HOSTS))),
                is_most=True,
                command="hosts",
            )
            for figure in ("CPU s/GB", "CPU s/GB receiver")
        ),
    ]


def told(records: Iterable[Record]) -> str:
    """Return the goals as the README has them, with the machine and the commit that each was measured on."""
    records = list(records)
    where = {one.command: f"{one.machine.processor}, {one.commit[:7]}" for one in records}
    rows = [
        f"| {goal.about} | at {'most' if goal.is_most else 'least'} {goal.bound:g} "
        f"| {'-' if goal.found is None else number(goal.found)} | {goal.verdict} "
        f"| {where.get(goal.command, '-')} |"
        for goal in goals(records)
    ]
    return "\n".join(("| set out to reach | | found | | on |", "|---|---|---|---|---|", *rows, ""))


def _median(result: Result | None, figure: str) -> float | None:
    spread = result.spread(figure) if result else None
    return spread.median if spread else None


def _ratio(pair: Sequence[Result | None], figure: str) -> float | None:
    """Return the median of the ratios of runs of one turn."""
    one, other = pair
    if one is None or other is None:
        return None
    found = compared(one, other, figure)
    return found.median if found else None


def _apart(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value]
    return max(known) / min(known) if len(known) == len(values) else None


def _quotient(many: float | None, few: float | None) -> float | None:
    return many / few if many and few else None
