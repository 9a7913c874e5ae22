"""What a shipper costs while nothing is written: processor time and memory with 1, 1,000 and 10,000 files, and starting again.

Whole process, against a real broker; the files stand in folders of a hundred, as those of containers do.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click

from bench.cpu import cpu_seconds, quiet_after, resident_bytes
from bench.processes import Processes, wait_until
from bench.suite import Suite
from bench.table import table

__all__ = ["Idle", "idle", "main"]

_HOST = "web01"
_PER_FOLDER = 100
_QUIET = 0.05
_NOTE = """\
CPU: user + system time of the shipper, in % of a core, while nothing is written. RSS: at the end of that. Start: CPU seconds
of a start with all files known, one of them with a new line, until that is stored and the program is quiet again."""


@dataclass(frozen=True, slots=True)
class Idle:
    """One measurement: a share of one core, bytes, and CPU seconds of a start with known files."""

    files: int
    share: float
    resident: int
    start: float


def idle(files: int, folder: Path, seconds: float, settled: float) -> Idle:
    """Let a shipper ship one line of each file, settle, do nothing for some seconds, and start once more."""
    written = _write(files, folder / "logs")
    with Processes(folder) as processes:
        suite = Suite(folder, processes, partitions=1)
        suite.start_broker()
        pattern = folder / "logs" / "*" / "*.log"
        shipper = suite.start_shipper(_HOST, [pattern])
        claims = 1
        wait_until(
            "all is shipped", lambda: suite.last_sequence() >= files + claims, 120, [shipper]
        )
        time.sleep(settled)
        used, began = cpu_seconds(shipper), time.monotonic()
        time.sleep(seconds)
        share = (cpu_seconds(shipper) - used) / (time.monotonic() - began)
        resident = resident_bytes(shipper)
        shipper.stop()
        _append(written[-1])
        shipper.start()
        claims += 1
        wait_until(
            "the new line is shipped",
            lambda: suite.last_sequence() >= files + claims + 1,
            120,
            [shipper],
        )
        return Idle(files, share, resident, quiet_after(shipper, _QUIET, 1))


def _write(files: int, folder: Path) -> list[Path]:
    paths = [folder / f"{n // _PER_FOLDER:03}" / f"app{n:05}.log" for n in range(files)]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        _append(path)
    return paths


def _append(path: Path) -> None:
    with path.open("a", encoding="ascii") as file:
        file.write(f"{path.name} started and has nothing to say\n")


def _row(one: Idle) -> list[str]:
    return [
        f"{one.files:,} files",
        f"{one.share:.2%}",
        f"{one.resident / 2**20:.0f}",
        f"{one.start:.2f}",
    ]


@click.command()
@click.option("--files", multiple=True, type=int, default=(1, 1_000, 10_000), show_default=True)
@click.option("--seconds", default=60.0, show_default=True, help="How long to watch.")
@click.option("--settle", default=15.0, show_default=True, help="Seconds to wait before that.")
def main(files: tuple[int, ...], seconds: float, settle: float) -> None:
    """Measure what a shipper costs while nothing is written to its files."""
    rows = []
    for number in files:
        with tempfile.TemporaryDirectory(prefix="logship-idle-") as name:
            rows.append(_row(idle(number, Path(name), seconds, settle)))
            print(rows[-1], flush=True)
    print(f"{table(['', 'CPU', 'RSS MiB', 'start CPU s'], rows)}\n{_NOTE}")


if __name__ == "__main__":
    main()
