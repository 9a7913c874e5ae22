"""Results as text and tables, for a terminal and for the README, from the records alone."""

from collections.abc import Sequence
from math import floor, log10

from bench.field.catalogue import OURS
from bench.result import Record, Result, Spread, compare_runs
from bench.text_table import table

_NONE = "-"


def plain(record: Record) -> str:
    """Return a record as a table in plain text, with what it is about."""
    heads, rows = _table(record)
    told = dict.fromkeys(f"{row[0]}: {row[-1]}" for row in rows)
    figures = table(heads[:-1], [row[:-1] for row in rows])
    return "\n".join((figures, *told, record.about, _machine(record)))


def markdown(record: Record, chart: str) -> str:
    """Return a record as Markdown; `chart` is the path of its picture, empty without one."""
    heads, rows = _table(record)
    lines = [heads, ["---"] * len(heads), *rows]
    body = "\n".join(f"| {' | '.join(map(_escaped, cells))} |" for cells in lines)
    picture = f"![{record.command}]({chart})\n\n" if chart else ""
    return (
        f"**{record.command}** (`python -m bench.{record.command}`). {record.about}\n"
        f"{_machine(record)}\n\n{picture}{body}\n"
    )


def number(value: float) -> str:
    """Return a value in three digits, or as many as precede the point."""
    digits = 2 if value == 0 else max(0, 2 - floor(log10(abs(value))))
    return f"{value:,.{digits}f}"


def _table(record: Record) -> tuple[list[str], list[list[str]]]:
    figures = list(
        dict.fromkeys(name for one in record.results if not one.void for name in one.figures)
    )
    ratios = [f"{name}, {OURS} to it" for name in _compared(record)]
    heads = ["", *ratios, *figures, "guarantees"]
    return heads, [_row(record, one, figures) for one in record.results]


def _compared(record: Record) -> tuple[str, ...]:
    """Return by what systems are compared; by nothing where there are no others."""
    return record.compared if any(one.system != OURS for one in record.results) else ()


def _row(record: Record, result: Result, figures: Sequence[str]) -> list[str]:
    name = f"{result.case}, {result.system} {result.version}".rstrip()
    if void := result.void:
        return [name, *[_NONE] * (len(_compared(record)) + len(figures)), void.partition("\n")[0]]
    ours = next(
        (one for one in record.results if (one.case, one.system) == (result.case, OURS)), None
    )
    ratios = [_ratio(ours, result, figure) for figure in _compared(record)]
    cells = [_spread(result.spread(figure)) for figure in figures]
    return [name, *ratios, *cells, _promised(result)]


def _promised(result: Result) -> str:
    reordered = max(run.reordered for run in result.runs)
    return f"{result.guarantees}{'; lines out of order' if reordered else ''}"


def _ratio(ours: Result | None, theirs: Result, figure: str) -> str:
    if ours is None or ours.void or ours is theirs:
        return _NONE
    return _spread(compare_runs(ours, theirs, figure))


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return _NONE
    if spread.least == spread.most:
        return number(spread.median)
    return f"{number(spread.median)} ({number(spread.least)}..{number(spread.most)})"


def _machine(record: Record) -> str:
    machine, versions = record.machine, record.versions
    loads = [run.load for one in record.results for run in one.runs]
    load = f"; load before a run {min(loads):g} to {max(loads):g}" if loads else ""
    software = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"{_runs(record)}{_common(record)} {record.date[:10]}, {machine}, {machine.processor}, "
        f"{machine.file_system}{load}; "
        f"commit {record.commit[:7]}{' with changes' if record.dirty else ''}; {software}."
    )


def _runs(record: Record) -> str:
    counts = [len(one.runs) for one in record.results if one.runs]
    if not counts or max(counts) == 1:
        return "One run each."
    least = f"{min(counts)} to " if min(counts) < max(counts) else ""
    return f"Medians, least and most of {least}{max(counts)} runs; ratios are of runs of one turn."


def _common(record: Record) -> str:
    """Return the parameters that all cases share: those that differ are in a case's name."""
    kept = [set(one.parameters.items()) for one in record.results]
    shared = set.intersection(*kept) if kept else set()
    order = record.results[0].parameters if record.results else {}
    text = [
        f"{name.replace('_', ' ')}: {value if isinstance(value, str) else format(value, ',g')}"
        for name, value in order.items()
        if (name, value) in shared
    ]
    return f" {', '.join(text).capitalize()}." if text else ""


def _escaped(cell: str) -> str:
    return cell.replace("|", "/")
