"""What the broker costs that `logbroker run` sets up: against a bare nats-server, of syncing always, and under --memory.

Everything is compared within one invocation, in turn, and told as ratios of pairs. What permissions and accounts cost is
measured by bench/rights, what a backup costs by bench/backup.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import click

from bench.contenders import (
    ALWAYS,
    BY_DEFAULT,
    Contender,
    NoStrace,
    bare,
    provisioned,
    slowed,
)
from bench.contest import Taken, What, contest
from bench.cpu import peak_bytes_of
from bench.pairs import ratio
from bench.processes import Processes
from bench.rounds import Rounds
from bench.table import table

__all__ = ["main"]

_BLOCK = Rounds("1 x 2 MiB", 2 * 1024 * 1024)
_BATCH = Rounds("64 x 256 KiB", 256 * 1024, messages=64)
_LINES = Rounds("1000 x 300 B", 300, messages=1000, share=4)
_LINE = Rounds("1 x 300 B", 300, share=800)
_HOSTS = Rounds("1 x 300 B of 16 hosts", 300, hosts=16, share=100)

_OURS, _BARE, _AGAIN = "logbroker", "bare", "bare again"
_PROVISIONED_NOTE = """\
MB/s and CPU seconds of nats-server per GB: medians; ratios: medians of pairs (least..most). The bare nats-server has the same
stream and `sync_interval: always`, and its own defaults else; "again" is another one like it, so its ratio is the error of
this measurement. "beside": what logbroker itself used, per GB."""
_SYNC_NOTE = """\
Two bare nats-servers that differ in `sync_interval` only: always, and 2m, which is nats-server's own. A round is acknowledged
before the next one is sent. ms: length of a round; ratios: always to 2m, medians of pairs (least..most)."""
_MEMORY_NOTE = """\
`logbroker run --memory …` (GOMEMLIMIT) with GOGC beside it; CPU seconds of nats-server per GB, medians. What collecting garbage
costs is in user, writing to the disk in system. RSS: the most that nats-server had, its mapped and cached files not among it."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a run is to be: bytes of each case, runs, milliseconds of an fsync, --memory and GOGC of servers to compare."""

    size: int
    runs: int
    fsync: float
    memory: tuple[str, ...]
    gogc: tuple[str, ...]

    @property
    def max_bytes(self) -> int:
        """Room for every case: headers may be as long as lines."""
        return 4 * self.size + 1024**3


def _measure_provisioned(folder: Path, processes: Processes, asked: _Asked) -> list[Taken]:
    ours = provisioned(_OURS, folder, processes, asked.max_bytes)
    others = [bare(name, folder, processes, asked.max_bytes) for name in (_BARE, _AGAIN)]
    mine, *theirs = (asyncio.run(one.stream()) for one in (ours, *others))
    if any(one != mine for one in theirs):
        raise click.ClickException(f"not the same stream: {mine} and {theirs}")
    cases = (_BLOCK, _BATCH, _LINES)
    taken = contest([others[0], ours, others[1]], cases, asked.size, asked.runs, *What)
    click.echo(_show_provisioned(taken))
    return taken


def _show_provisioned(taken: Sequence[Taken]) -> str:
    rates, cpu = [], []
    for what in What:
        for case in dict.fromkeys(one.case for one in taken):
            found = [one for one in taken if (one.case, one.what) == (case, what)]
            name = f"{what.value} {case}"
            rates.append([name, *_compared(found, _rate, "#.3g")])
            beside = _median(_of(found, _OURS), lambda one: one.beside_per_gb)
            cpu.append([name, *_compared(found, _cpu, ".2f"), f"{beside:.2f}"])
    heads = (_BARE, _OURS, "ratio", f"ratio, {_AGAIN}")
    tables = table(["MB/s", *heads], rates), table(["CPU s/GB", *heads, "beside"], cpu)
    return "\n\n".join([*tables, _PROVISIONED_NOTE])


def _compared(taken: Sequence[Taken], of: Callable[[Taken], float], form: str) -> list[str]:
    base, ours, again = (_of(taken, name) for name in (_BARE, _OURS, _AGAIN))
    medians = [format(_median(side, of), form) for side in (base, ours)]
    return [*medians, _ratio(ours, base, of), _ratio(again, base, of)]


def _measure_sync(folder: Path, processes: Processes, asked: _Asked) -> list[Taken]:
    cases = (_BLOCK, _BATCH, _LINES, _LINE, _HOSTS)
    disks: dict[str, list[str]] = {"this disk": []}
    try:
        disks[f"{asked.fsync:g} ms longer"] = slowed(asked.fsync)
    except NoStrace as error:
        click.echo(f"no emulated fsync: {error}")
    found = []
    for number, (disk, before) in enumerate(disks.items()):
        home = folder / f"disk{number}"
        home.mkdir()
        pair = [
            bare(f"{sync}-{number}", home, processes, asked.max_bytes, sync, before)
            for sync in (BY_DEFAULT, ALWAYS)
        ]
        taken = contest(pair, cases, asked.size, asked.runs, What.PUBLISH)
        click.echo(_show_sync(disk, pair, taken))
        found += taken
        for one in pair:
            one.process.terminate()
    click.echo(_SYNC_NOTE)
    return found


def _show_sync(disk: str, pair: Sequence[Contender], taken: Sequence[Taken]) -> str:
    rows = []
    for case in dict.fromkeys(one.case for one in taken):
        lax, strict = (
            [one for one in taken if (one.case, one.who) == (case, contender.name)]
            for contender in pair
        )
        rows.append(
            [
                case,
                *(f"{_median(side, _rate):.3g}" for side in (lax, strict)),
                _ratio(strict, lax, _rate),
                *(f"{_median(side, _length):.2f}" for side in (lax, strict)),
                *(f"{_median(side, _cpu):.2f}" for side in (lax, strict)),
                _ratio(strict, lax, _cpu),
            ]
        )
    heads = ("2m MB/s", "always", "ratio", "2m ms", "always", "2m CPU s/GB", "always", "ratio")
    return table([f"fsync: {disk}", *heads], rows)


def _measure_memory(folder: Path, processes: Processes, asked: _Asked) -> list[Taken]:
    contenders = [
        provisioned(
            f"{memory}, GOGC={gogc}",
            folder,
            processes,
            asked.max_bytes,
            ("--memory", memory),
            {"GOGC": gogc},
        )
        for memory in asked.memory
        for gogc in asked.gogc
    ]
    taken = contest(contenders, [_BATCH], asked.size, asked.runs, What.PUBLISH)
    rows = []
    for contender in contenders:
        own = _of(taken, contender.name)
        rows.append(
            [
                contender.name,
                f"{_median(own, _rate):.0f}",
                f"{_median(own, _cpu):.2f}",
                f"{_median(own, lambda one: one.user / one.size * 1e9):.2f}",
                f"{_median(own, lambda one: one.system / one.size * 1e9):.2f}",
                f"{peak_bytes_of(contender.pid) / 2**20:.0f}",
            ]
        )
    heads = [f"{asked.size / 1e6:.0f} MB", "MB/s", "CPU s/GB", "user", "system", "RSS MiB"]
    click.echo(f"{table(heads, rows)}\n{_MEMORY_NOTE}")
    return taken


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


_PARTS = {
    "provisioned": _measure_provisioned,
    "sync": _measure_sync,
    "memory": _measure_memory,
}


@click.command()
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(list(_PARTS)),
    default=("provisioned", "sync"),
    show_default=True,
)
@click.option(
    "--size",
    default=128,
    show_default=True,
    help="MB of each case and run; of small messages a part.",
)
@click.option("--runs", default=5, show_default=True)
@click.option(
    "--fsync",
    default=2.0,
    show_default=True,
    help="Milliseconds by which each fsync is made longer, by strace.",
)
@click.option("--memory", multiple=True, default=("512MiB", "1GiB", "2GiB"), show_default=True)
@click.option("--gogc", multiple=True, default=("400",), show_default=True)
@click.option(
    "--folder", type=click.Path(path_type=Path, exists=True), help="Where to work; default: /tmp."
)
@click.option("--json", "report", type=click.Path(path_type=Path), help="Write the figures there.")
def main(
    parts: tuple[str, ...],
    size: int,
    runs: int,
    fsync: float,
    memory: tuple[str, ...],
    gogc: tuple[str, ...],
    folder: Path | None,
    report: Path | None,
) -> None:
    """Measure what the broker costs that `logbroker run` sets up."""
    asked = _Asked(size * 1_000_000, runs, fsync, memory, gogc)
    click.echo(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    found = {part: _run(part, folder, asked) for part in dict.fromkeys(parts)}
    if report:
        figures = {
            part: [{**asdict(one), "what": one.what.value} for one in taken]
            for part, taken in found.items()
        }
        report.write_text(json.dumps(figures, indent=2) + "\n")


def _run(part: str, folder: Path | None, asked: _Asked) -> list[Taken]:
    with (
        tempfile.TemporaryDirectory(prefix="logship-broker-", dir=folder) as name,
        Processes(Path(name)) as processes,
    ):
        return _PARTS[part](Path(name), processes, asked)


if __name__ == "__main__":
    main()
