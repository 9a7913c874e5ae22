"""How soon a line that is written on a host stands in the received file, and what the receiver costs meanwhile and when idle.

The whole path with real programs: a file, a shipper, the broker, a receiver. Each line carries the time of its write; a
reader follows the received file as `tail -F` would, and both go by the clock of this machine.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import click

from bench.cpu import cpu_by_process, cpu_seconds, proportional_bytes
from bench.processes import Process, Processes, wait_until
from bench.road import LINE_BYTES, Road
from bench.suite import Suite
from bench.table import table
from receiver.spark.java import class_data, find_java

__all__ = ["Seen", "main", "receive_live"]

_HOST = "web01"
_WARM_UP = 5.0  # seconds of lines that are not counted
_PARTS = ("driver", "JVM", "workers")
_NOTE = """\
Latency: from a line's write to its bytes in the received file, in ms. CPU: user + system time of the receiver while lines
come, in % of a core, by process; the shipper's and the broker's beside it. Idle: the receiver's, after some silence. PSS: of
all the receiver's processes, pages that several share divided among them, the most of what was seen."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One measurement: milliseconds, shares of one core, bytes; `lines` were counted of `written`."""

    partitions: int
    latencies: tuple[float, ...]
    written: int
    receiver: tuple[float, ...]
    shipper: float
    broker: float
    idle: tuple[float, ...]
    memory: int


def receive_live(
    folder: Path, partitions: int, rate: int, per_write: int, seconds: tuple[float, float]
) -> Seen:
    """Write for so many seconds while shipper and receiver follow, then be silent for as many as the second number says."""
    live, silent = seconds
    (folder / "logs").mkdir()
    paths = [folder / "logs" / f"app{number}.log" for number in range(10)]
    for path in paths:
        path.touch()
    with Processes(folder) as processes:
        suite = Suite(folder, processes, partitions)
        broker = suite.start_broker()
        receiver = suite.start_receiver(range(partitions))
        suite.wait_for_receiver(receiver, range(partitions))
        shipper = suite.start_shipper(_HOST, [folder / "logs" / "*.log"])
        programs = (receiver, shipper, broker)
        road = Road(paths, rate, per_write, suite.output / f"{_HOST}.log")
        road.write_for(_WARM_UP)
        road.wait_for_all(60, programs)
        road.forget()
        warm, written = _Meter(*programs), road.written
        road.write_for(live)
        costs, memory = warm.shares(), proportional_bytes(receiver)
        road.wait_for_all(60, programs)
        time.sleep(min(silent, 8.0))  # until the stay ends
        still = _Meter(*programs)
        time.sleep(silent)
        idle = still.shares()[0]
        memory = max(memory, proportional_bytes(receiver))
    return Seen(
        partitions,
        tuple(road.latencies()),
        (road.written - written) // LINE_BYTES,
        costs[0],
        sum(costs[1]),
        sum(costs[2]),
        idle,
        memory,
    )


class _Meter:
    """What programs use from now on; the first one is told apart by process."""

    def __init__(self, receiver: Process, *others: Process) -> None:
        self._receiver, self._others = receiver, others
        self._began = time.monotonic()
        self._before = self._used()

    def _used(self) -> list[tuple[float, ...]]:
        parts = dict.fromkeys(_PARTS, 0.0)
        for pid, (name, seconds) in cpu_by_process(self._receiver).items():
            part = "JVM" if name == "java" else "workers"
            parts["driver" if pid == self._receiver.pid else part] += seconds
        return [tuple(parts.values()), *((cpu_seconds(other),) for other in self._others)]

    def shares(self) -> list[tuple[float, ...]]:
        passed = time.monotonic() - self._began
        return [
            tuple((now - then) / passed for now, then in zip(used, before, strict=True))
            for used, before in zip(self._used(), self._before, strict=True)
        ]


def first_line(folder: Path) -> float:
    """Return the seconds from the start of a receiver to the first line in its folder; the line is in the stream before."""
    with Processes(folder) as processes:
        suite = Suite(folder, processes, partitions=1)
        suite.start_broker()
        suite.publish(f"logs.p0.{_HOST}", b"a line\n")
        began = time.monotonic()
        receiver = suite.start_receiver([0])
        received = suite.output / f"{_HOST}.log"
        wait_until(
            "a line is received",
            lambda: received.exists() and received.stat().st_size > 0,
            60,
            [receiver],
        )
        return time.monotonic() - began


@contextmanager
def _class_data(*, wanted: bool, folder: Path) -> Iterator[None]:
    """Have class data there or not, and leave what was there before."""
    path = class_data(find_java(os.environ))
    aside = path.with_name(f"{path.name}.aside")
    with suppress(FileNotFoundError):
        path.replace(aside)
    try:
        if wanted:
            with Processes(folder) as processes:
                suite = Suite(folder, processes)
                suite.start_program("logreceiver", "prepare", ["prepare"]).wait(300)
        yield
    finally:
        path.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            aside.replace(path)


def _starts(runs: int) -> Iterator[str]:
    for wanted in (False, True) if runs else ():
        with (
            tempfile.TemporaryDirectory(prefix="logship-prepare-") as prepared,
            _class_data(wanted=wanted, folder=Path(prepared)),
        ):
            taken = [_in_a_fresh_folder() for _ in range(runs)]
        words = "with `logreceiver prepare`" if wanted else "without class data"
        listed = ", ".join(f"{seconds:.1f}" for seconds in taken)
        yield f"start to first line {words}: median {statistics.median(taken):.1f} s ({listed})"


def _in_a_fresh_folder() -> float:
    with tempfile.TemporaryDirectory(prefix="logship-start-") as name:
        return first_line(Path(name))


def _row(one: Seen) -> list[str]:
    cuts = quantiles(one.latencies, n=100)
    return [
        f"{one.partitions} partition{'s'[: one.partitions > 1]}",
        *(f"{value:.0f}" for value in (cuts[49], cuts[98], max(one.latencies))),
        *(f"{share:.1%}" for share in (sum(one.receiver), *one.receiver)),
        f"{one.shipper:.1%}",
        f"{one.broker:.1%}",
        f"{sum(one.idle):.2%}",
        " + ".join(f"{share:.2%}" for share in one.idle),
        f"{one.memory / 2**20:.0f}",
    ]


_HEADS = ("", "p50 ms", "p99 ms", "max ms", "CPU", *_PARTS, "shipper", "broker")


@click.command()
@click.option("--partitions", multiple=True, type=int, default=(1, 10), show_default=True)
@click.option("--rate", default=5_000, show_default=True, help="Lines a second over ten files.")
@click.option("--per-write", default=5, show_default=True, help="Lines of one write.")
@click.option("--seconds", default=30.0, show_default=True, help="Of lines.")
@click.option("--silent", default=30.0, show_default=True, help="Seconds without.")
@click.option("--starts", default=3, show_default=True, help="With class data, and without.")
def main(
    partitions: tuple[int, ...],
    rate: int,
    per_write: int,
    seconds: float,
    silent: float,
    starts: int,
) -> None:
    """Measure the whole path at a steady rate, and a receiver that has nothing to do."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed receiver has its bytecode, too
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    rows = []
    for number in partitions:
        with tempfile.TemporaryDirectory(prefix="logship-live-") as name:
            one = receive_live(Path(name), number, rate, per_write, (seconds, silent))
        rows.append(_row(one))
        print(f"{len(one.latencies)} lines received of {one.written} written", flush=True)
    print(f"{rate} lines of {LINE_BYTES} bytes a second over 10 files of one host")
    print(f"{table([*_HEADS, 'idle', 'of these', 'PSS MiB'], rows)}\n{_NOTE}")
    for words in _starts(starts):
        print(words, flush=True)


if __name__ == "__main__":
    main()
