"""What the broker costs that `logbroker run` sets up: against a bare nats-server, of syncing always, and under --memory.

Everything is compared within one invocation, in turn, and told as ratios of pairs. What permissions and accounts cost is
measured by bench/rights, what a backup costs by bench/backup.
"""

import asyncio
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bench.broker_tables import (
    AGAIN,
    BARE,
    OURS,
    SYNC_NOTE,
    show_memory,
    show_provisioned,
    show_sync,
)
from bench.contenders import (
    ALWAYS,
    BY_DEFAULT,
    NoStrace,
    bare,
    provisioned,
    slowed,
)
from bench.contest import Taken, What, contest
from bench.cpu import peak_bytes_of
from bench.processes import Processes
from bench.rounds import Rounds

__all__ = ["main"]

_BLOCK = Rounds("1 x 2 MiB", 2 * 1024 * 1024)
_LARGEST = Rounds("1 x 7 MiB", 7 * 1024 * 1024)
_LINES = Rounds("1 x 64 KiB", 64 * 1024, share=8)
_LINE = Rounds("1 x 300 B", 300, share=800)
_HOSTS = Rounds("1 x 300 B of 16 hosts", 300, hosts=16, share=100)


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
    ours = provisioned(OURS, folder, processes, asked.max_bytes)
    others = [bare(name, folder, processes, asked.max_bytes) for name in (BARE, AGAIN)]
    mine, *theirs = (asyncio.run(one.stream()) for one in (ours, *others))
    if any(one != mine for one in theirs):
        raise click.ClickException(f"not the same stream: {mine} and {theirs}")
    cases = (_BLOCK, _LARGEST, _LINES)
    taken = contest([others[0], ours, others[1]], cases, asked.size, asked.runs, *What)
    click.echo(show_provisioned(taken))
    return taken


def _measure_sync(folder: Path, processes: Processes, asked: _Asked) -> list[Taken]:
    cases = (_BLOCK, _LARGEST, _LINES, _LINE, _HOSTS)
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
        click.echo(show_sync(disk, [one.name for one in pair], taken))
        found += taken
        for one in pair:
            one.process.stop(60)
    click.echo(SYNC_NOTE)
    return found


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
    taken = contest(contenders, [_BLOCK, _LARGEST], asked.size, asked.runs, What.PUBLISH)
    peaks = {one.name: peak_bytes_of(one.pid) for one in contenders}
    click.echo(show_memory(asked.size, peaks, taken))
    return taken


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
    default=100,
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
