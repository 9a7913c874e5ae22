"""The record in words and tables, as the README has it. A core: made of the record alone."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil

from tests.chaos.record import Entry

__all__ = ["BEGIN", "END", "told"]

BEGIN = "<!-- made by `make chaos-record`, never by hand -->"
END = "<!-- so far -->"
_OURS = "logship"
_COUNTED = ("missing", "repeated", "reordered", "torn", "altered", "foreign")
_HEAD = (
    "runs | hours | faults | lines | missing | repeated | out of order | torn | altered | foreign"
)
_RULE = "|---" * 11 + "|"


def told(entries: Sequence[Entry], families: Mapping[str, Iterable[str]]) -> str:
    """Return the whole record; `families` are the names of faults by family."""
    ours = [entry for entry in entries if entry.suite == _OURS]
    if not ours:
        return "No run is recorded yet.\n"
    parts = [_summary(ours), _outcomes(ours), _faults(ours, families), _failures(ours)]
    contests = [entry for entry in entries if entry.contest]
    if any(entry.suite != _OURS for entry in contests):
        parts.append(_contests(contests))
    return "\n".join(filter(None, parts))


def _summary(entries: Sequence[Entry]) -> str:
    dates = sorted(entry.date[:10] for entry in entries)
    waits = sorted(wait for entry in entries for wait in entry.waits)
    text = (
        f"{len(entries)} runs, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}: "
        f"brokers {_shares(entries, 'topology')}; receivers {_shares(entries, 'receivers')}; "
        f"{sum(bool(entry.shape.get('secured')) for entry in entries)} with credentials. "
        f"{sum(entry.strokes for entry in entries):,} strokes of {_struck(entries):,} faults; "
        f"{sum(sum(entry.not_struck.values()) for entry in entries):,} more found nothing to hit.\n"
    )
    if waits:
        text += (
            f"After a stroke, lines flowed again within {_quantile(waits, 0.5):g} s (median), "
            f"{_quantile(waits, 0.99):g} s (99 %), {waits[-1]:g} s (the longest).\n"
        )
    if strange := sum(entry.dirty or entry.lineage != "known" for entry in entries):
        text += f"{strange} of them ran code that is no commit of this project.\n"
    return text


def _shares(entries: Sequence[Entry], field: str) -> str:
    counts = Counter(str(entry.shape.get(field)) for entry in entries)
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def _outcomes(entries: Sequence[Entry]) -> str:
    rows = {
        "passed": lambda entry: not entry.findings and not entry.destroyed,
        "passed, and told all that was destroyed on purpose": lambda entry: (
            not entry.findings and entry.destroyed
        ),
        "failed": lambda entry: entry.findings,
    }
    return _counts(entries, rows)


def _contests(entries: Sequence[Entry]) -> str:
    suites = dict.fromkeys(entry.suite for entry in sorted(entries, key=lambda e: e.suite != _OURS))
    rows = {suite: lambda entry, suite=suite: entry.suite == suite for suite in suites}
    contests = len({entry.contest for entry in entries})
    return (
        "What came of the same schedules with several suites, each as it is best set up "
        f"(schedules: {contests}):\n\n"
        f"{_counts(entries, rows)}"
    )


def _counts(entries: Sequence[Entry], rows: Mapping[str, Callable[[Entry], object]]) -> str:
    lines = [f"| | {_HEAD} |", _RULE]
    for name, holds in rows.items():
        if some := [entry for entry in entries if holds(entry)]:
            cells = [
                name,
                f"{len(some)}",
                f"{sum(entry.seconds for entry in some) / 3600:.1f}",
                f"{_struck(some):,}",
                f"{_lines(some, 'written'):,}",
                *(f"{_lines(some, counted):,}" for counted in _COUNTED),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    destroyed, reported = (
        sum(getattr(entry, field) for entry in entries) for field in ("destroyed", "reported")
    )
    if destroyed or reported:
        lines += ["", f"{destroyed:,} bytes were destroyed on purpose, {reported:,} told as lost."]
    return "".join(f"{line}\n" for line in lines)


def _faults(entries: Sequence[Entry], families: Mapping[str, Iterable[str]]) -> str:
    """Tell how often each kind has struck, where, and the longest wait after a stroke that it was part of."""
    single, cluster = (
        _sum(entry.faults for entry in entries if entry.shape.get("topology") == topology)
        for topology in ("single", "cluster")
    )
    left = single | cluster
    lines = [
        "| faults | one broker | three | longest wait, s | each kind, and its longest wait |",
        "|---|---|---|---|---|",
    ]
    for family, kinds in {**families, "others": ()}.items():
        names = [kind for kind in (kinds if family != "others" else sorted(left)) if kind in left]
        if not names:
            continue
        longest = {name: _longest(entries, name) for name in names}
        each = ", ".join(
            f"{name} {single[name] + cluster[name]}"
            + (f" ({longest[name]:g} s)" if longest[name] else "")
            for name in names
        )
        lines.append(
            f"| {family} | {sum(single[name] for name in names):,} "
            f"| {sum(cluster[name] for name in names):,} | {max(longest.values()):g} | {each} |"
        )
        left = Counter({name: count for name, count in left.items() if name not in names})
    return "".join(f"{line}\n" for line in lines)


def _failures(entries: Sequence[Entry]) -> str:
    failed = [entry for entry in entries if entry.findings]
    if not failed:
        return ""
    lines = ["| failed | seed | world | finding | mended by |", "|---|---|---|---|---|"]
    for entry in failed:
        world = f"{entry.shape.get('topology')}, {entry.shape.get('receivers')}"
        finding = entry.findings[0].replace("|", "/")
        mended = f"`{entry.mended_by[:7]}`" if entry.mended_by else ""
        lines.append(f"| {entry.date} | {entry.seed} | {world} | {finding} | {mended} |")
    return "".join(f"{line}\n" for line in lines)


def _struck(entries: Iterable[Entry]) -> int:
    return sum(sum(entry.faults.values()) for entry in entries)


def _lines(entries: Iterable[Entry], name: str) -> int:
    return sum(entry.lines.get(name, 0) for entry in entries)


def _sum(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for count in counts:
        sums.update(count)
    return sums


def _longest(entries: Iterable[Entry], kind: str) -> float:
    return max((entry.longest.get(kind, 0.0) for entry in entries), default=0.0)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the least value that so large a share of all does not exceed."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
