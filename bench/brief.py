"""Make the README's table of comparison from records: rate, CPU, latency and what survives."""

from collections.abc import Iterable

from bench.field.catalogue import OURS
from bench.result import Record, Result
from bench.resulttext import number

_BACKLOG, _STEADY = "2,000 MB", "5,000 lines/s"
_HEADS = (
    *("", "MB/s", "CPU s/GB", "p50 ms", "p99 ms", "CPU %", "order is kept"),
    "promises to survive kill -9",
)


def brief(records: Iterable[Record]) -> str:
    """Return the table of all systems that were measured, ours first."""
    by_command = {record.command: record for record in records}
    drain, steady = by_command.get("drain"), by_command.get("steady")
    if drain is None or steady is None:
        return "Nothing is measured yet.\n"
    backlog, live = _of_case(drain, _BACKLOG), _of_case(steady, _STEADY)
    rows = [_row(backlog[name], live.get(name)) for name in backlog if not backlog[name].void]
    lines = [_HEADS, ["---"] * len(_HEADS), *rows]
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"{body}\n\n{_about(drain, steady)}\n"


def _of_case(record: Record, case: str) -> dict[str, Result]:
    found = {one.system: one for one in record.results if one.case == case and one.system != "cp"}
    return dict(sorted(found.items(), key=lambda item: item[0] != OURS))


def _row(backlog: Result, live: Result | None) -> list[str]:
    reordered = any(run.reordered for run in backlog.runs)
    promised = backlog.guarantees
    return [
        f"{backlog.system} {backlog.version}",
        *(_median(backlog, name) for name in ("MB/s", "CPU s/GB")),
        *(_median(live, name) for name in ("p50 ms", "p99 ms", "CPU %")),
        "yes" if promised.ordered and not reordered else "no",
        "yes" if promised.survives_kill else "no",
    ]


def _median(result: Result | None, figure: str) -> str:
    spread = result.spread(figure) if result and not result.void else None
    return number(spread.median) if spread else "-"


def _about(drain: Record, steady: Record) -> str:
    return (
        f"MB/s and CPU of a backlog of {_BACKLOG} of 200-byte lines "
        f"({drain.date[:10]}, commit {drain.commit[:7]}); latency from a "
        f"line's write to the received file, and CPU in % of a core, at {_STEADY} "
        f"({steady.date[:10]}, commit {steady.commit[:7]}); "
        f"{drain.machine}, {drain.machine.processor}. Vector was not measured."
    )
