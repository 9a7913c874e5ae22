"""What a shipper costs while lines are written at a steady rate, and how soon after reading a line is stored.

Whole process, against a real broker. From read to stored: the stream's time of a block minus its Log-Read-At header,
both by the clock of this machine. From read to acknowledged: by the shipper's own metrics.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import click

from bench.acks import acks, share_within
from bench.cpu import cpu_seconds, resident_bytes
from bench.latency import read_delays
from bench.lines import LogLines
from bench.ports import free_port
from bench.processes import Process, Processes, wait_until
from bench.suite import Suite
from bench.table import table

__all__ = ["Live", "live", "main"]

_HOST = "web01"
_WARM_UP = 3.0
_SOON = 0.02
_NOTE = """\
CPU: user + system time of the shipper, in % of a core. RSS: at the end. Read to stored: from reading a block to its time in
the stream, in ms, over all blocks; the broker syncs each round to disk. Acked: rounds acknowledged within 20 ms of reading."""


@dataclass(frozen=True, slots=True)
class Live:
    """One measurement: a share of one core, bytes, milliseconds, a share of all rounds, rounds a second."""

    writes: str
    share: float
    resident: int
    median: float
    p99: float
    soon: float
    rounds: float


class _Writer:
    """Writes lines to files in turn; `per_write` lines with each write."""

    def __init__(self, files: list[Path], rate: int, per_write: int) -> None:
        self._files = [path.open("ab", buffering=0) for path in files]
        lines = LogLines("live", 1).take(1000 * per_write).splitlines(keepends=True)
        cuts = range(0, 1000 * per_write, per_write)
        self._texts = [b"".join(lines[cut : cut + per_write]) for cut in cuts]
        self._rate = rate / per_write
        self.written = 0

    def write_for(self, seconds: float) -> None:
        began, done = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * self._rate)
            for number in range(done, due):
                text = self._texts[number % len(self._texts)]
                self._files[number % len(self._files)].write(text)
                self.written += len(text)
            done = due
            time.sleep(0.001)


def live(folder: Path, files: int, rate: int, per_write: int, seconds: float) -> Live:
    """Write for some seconds while a shipper follows, and return what that cost."""
    paths = [folder / "logs" / f"app{number}.log" for number in range(files)]
    (folder / "logs").mkdir()
    for path in paths:
        path.touch()
    with Processes(folder) as processes:
        suite = Suite(folder, processes, partitions=1)
        suite.start_broker()
        address = f"127.0.0.1:{free_port()}"
        logs = folder / "logs" / "*.log"
        shipper = suite.start_shipper(_HOST, [logs], "--listen", address)
        writer = _Writer(paths, rate, per_write)
        writer.write_for(_WARM_UP)
        wait_until("something is stored", lambda: suite.last_sequence() > 1, 20, [shipper])
        first = suite.last_sequence() + 1
        before = acks(address)
        used, began = cpu_seconds(shipper), time.monotonic()
        writer.write_for(seconds)
        share = (cpu_seconds(shipper) - used) / (time.monotonic() - began)
        resident = resident_bytes(shipper)
        after = acks(address)
        _wait_until_shipped(suite, shipper, paths)
        stored = read_delays(suite.url, first, suite.last_sequence() + 1)
    delays = [(block.stored_at - block.read_at) / 1e6 for block in stored]
    cuts = quantiles(delays, n=100)
    soon = share_within(_SOON, before, after)
    rounds = (after[float("inf")] - before[float("inf")]) / seconds
    return Live(f"{per_write} lines a write", share, resident, cuts[49], cuts[98], soon, rounds)


def _wait_until_shipped(suite: Suite, shipper: Process, paths: list[Path]) -> None:
    sequence = -1

    def stands_still() -> bool:
        nonlocal sequence
        before, sequence = sequence, suite.last_sequence()
        time.sleep(0.5)
        return before == sequence

    wait_until("all is shipped", stands_still, 30, [shipper])


def _row(one: Live) -> list[str]:
    return [
        one.writes,
        f"{one.share:.2%}",
        f"{one.resident / 2**20:.0f}",
        f"{one.median:.1f}",
        f"{one.p99:.1f}",
        f"{one.soon:.1%}",
        f"{one.rounds:.1f}",
    ]


@click.command()
@click.option("--files", default=10, show_default=True)
@click.option("--rate", default=5_000, show_default=True, help="Lines a second over all files.")
@click.option("--per-write", multiple=True, type=int, default=(5, 1), show_default=True)
@click.option("--seconds", default=20.0, show_default=True)
def main(files: int, rate: int, per_write: tuple[int, ...], seconds: float) -> None:
    """Measure what a shipper costs while lines are written at a steady rate."""
    rows = []
    for number in per_write:
        with tempfile.TemporaryDirectory(prefix="logship-live-") as name:
            rows.append(_row(live(Path(name), files, rate, number, seconds)))
    heads = ["", "CPU", "RSS MiB", "read to stored p50 ms", "p99 ms", "acked in 20 ms", "rounds/s"]
    print(f"{rate} lines a second over {files} files\n{table(heads, rows)}\n{_NOTE}")


if __name__ == "__main__":
    main()
