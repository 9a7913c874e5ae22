"""What bench/broker found, as tables: medians of each side, and ratios of pairs. Pure."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from bench.contest import Taken, What
from bench.pairs import ratio
from bench.table import table

__all__ = [
    "AGAIN",
    "BARE",
    "OURS",
    "SYNC_NOTE",
    "show_memory",
    "show_provisioned",
    "show_sync",
]

OURS, BARE, AGAIN = "logbroker", "bare", "bare again"
_PROVISIONED_NOTE = """\
MB/s and CPU seconds of nats-server per GB: medians; ratios: medians of pairs (least..most). The bare nats-server has the same
stream and `sync_interval: always`, and its own defaults else; "again" is another one like it, so its ratio is the error of
this measurement. "beside": what logbroker itself used, per GB."""
SYNC_NOTE = """\
Two bare nats-servers that differ in `sync_interval` only: always, and 2m, which is nats-server's own. A round is acknowledged
before the next one is sent. ms: length of a round; ratios: always to 2m, medians of pairs (least..most)."""
_MEMORY_NOTE = """\
`logbroker run --memory …` (GOMEMLIMIT) with GOGC beside it; CPU seconds of nats-server per GB, medians. What collecting garbage
costs is in user, writing to the disk in system. RSS: the most that nats-server had, the page cache not among it."""


def show_provisioned(taken: Sequence[Taken]) -> str:
    """Return how the broker of `logbroker run` compares with a bare one, and that with another of its kind."""
    rates, cpu = [], []
    for what in What:
        for case in dict.fromkeys(one.case for one in taken):
            found = [one for one in taken if (one.case, one.what) == (case, what)]
            name = f"{what.value} {case}"
            rates.append([name, *_compared(found, _rate, _figures)])
            beside = _median(_of(found, OURS), lambda one: one.beside_per_gb)
            cpu.append([name, *_compared(found, _cpu, "{:.2f}".format), f"{beside:.2f}"])
    heads = (BARE, OURS, "ratio", f"ratio, {AGAIN}")
    tables = table(["MB/s", *heads], rates), table(["CPU s/GB", *heads, "beside"], cpu)
    return "\n\n".join([*tables, _PROVISIONED_NOTE])


def _compared(
    taken: Sequence[Taken], of: Callable[[Taken], float], shown: Callable[[float], str]
) -> list[str]:
    base, ours, again = (_of(taken, name) for name in (BARE, OURS, AGAIN))
    medians = [shown(_median(side, of)) for side in (base, ours)]
    return [*medians, _ratio(ours, base, of), _ratio(again, base, of)]


def show_sync(disk: str, pair: Sequence[str], taken: Sequence[Taken]) -> str:
    """Return what syncing always costs on a disk; the names of `pair` are the one by default and the one that does."""
    rows = []
    for case in dict.fromkeys(one.case for one in taken):
        lax, strict = (
            [one for one in taken if (one.case, one.who) == (case, name)] for name in pair
        )
        rows.append(
            [
                case,
                *(_figures(_median(side, _rate)) for side in (lax, strict)),
                _ratio(strict, lax, _rate),
                *(f"{_median(side, _length):.2f}" for side in (lax, strict)),
                *(f"{_median(side, _cpu):.2f}" for side in (lax, strict)),
                _ratio(strict, lax, _cpu),
            ]
        )
    heads = ("2m MB/s", "always", "ratio", "2m ms", "always", "2m CPU s/GB", "always", "ratio")
    return table([f"fsync: {disk}", *heads], rows)


def show_memory(size: int, peaks: Mapping[str, int], taken: Sequence[Taken]) -> str:
    """Return what `size` bytes cost each broker; `peaks` is the most memory of each, in bytes."""
    rows = []
    for case in dict.fromkeys(one.case for one in taken):
        for name, peak in peaks.items():
            own = [one for one in _of(taken, name) if one.case == case]
            parts = (lambda one: one.user, lambda one: one.system)
            rows.append(
                [
                    f"{name}, {case}",
                    _figures(_median(own, _rate)),
                    f"{_median(own, _cpu):.2f}",
                    *(f"{_median(own, part) / own[0].size * 1e9:.2f}" for part in parts),
                    f"{peak / 2**20:.0f}",
                ]
            )
    heads = [f"{size / 1e6:.0f} MB", "MB/s", "CPU s/GB", "user", "system", "RSS MiB"]
    return f"{table(heads, rows)}\n{_MEMORY_NOTE}"


def _figures(rate: float) -> str:
    """Return three figures of a rate, however large or small it is."""
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"


def _of(taken: Sequence[Taken], name: str) -> list[Taken]:
    return [one for one in taken if one.who == name]


def _rate(one: Taken) -> float:
    return one.rate


def _cpu(one: Taken) -> float:
    return one.per_gb


def _length(one: Taken) -> float:
    return one.milliseconds


def _median(taken: Sequence[Taken], of: Callable[[Taken], float]) -> float:
    return median(map(of, taken))


def _ratio(ones: Sequence[Taken], others: Sequence[Taken], of: Callable[[Taken], float]) -> str:
    return str(ratio([*map(of, ones)], [*map(of, others)]))
