"""Measure what a table costs: all lines of a stream at once, and those of a fleet as they come."""

import hashlib
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import click
import polars
import zstandard

from bench.backlog import LINE_BYTES
from bench.expected import Expected
from bench.field.logship import Logship
from bench.field.streaming import Streaming
from bench.field.system import System
from bench.fill import BLOCK_LINES, Sent, backlog_cases, blocks, fill
from bench.fleet import allow_descriptors
from bench.machine import touch_memory
from bench.options import Question, compare
from bench.replay import seconds_until_end
from bench.table_live import measure_live
from bench.trial import Case, Outcome
from tests.support.oracle import Verdict, judge
from tests.support.processes import Process, Processes
from tests.support.suite import Suite

_GB = 1e9
_HOSTS = 8
_ABOUT = """\
A table of all that is in the stream, compressed blocks of 256 KiB from eight hosts: from the \
start of the program (Spark's too) to its end; the bytes of every host are read by Polars and \
checked. Ours: `logreceiver table --once`; beside it Spark's Structured Streaming, as in \
docs/spark.md. CPU: user and system seconds of the writer and its Spark per GB (1e9 bytes) of \
lines; size: files of the table to the same lines as one text by zstd -3. Live: hosts of \
`bench.fleet` write beside a receiver of all partitions; processor time in % of a core without \
the first minute, and when lines are in the table."""


def measure(system: System, folder: Path, lines: int) -> Outcome:
    """Fill a stream and write its table, in an empty folder; raises TookTooLong, ProgramDied."""
    expected, table = Expected(), folder / "table"
    size = lines * LINE_BYTES
    with Processes(folder) as processes:
        suite = Suite(folder, processes, partitions=1)
        suite.start_broker()
        fill(int(suite.url.rpartition(":")[2]), expected.note(_messages(lines)))
        touch_memory(size)
        began = time.monotonic()
        program = _start(system, suite, processes, table)
        cpu = seconds_until_end(program, 120 + size / 2e6)
        seconds = time.monotonic() - began
    stored = sum(path.stat().st_size for path in table.rglob("*.parquet"))
    figures = {
        "MB/s": size / 1e6 / seconds,
        "s": seconds,
        "CPU s/GB": cpu / (size / _GB),
        "files": len([*table.rglob("*.parquet")]),
        "size": stored / _text_bytes(lines),
    }
    return Outcome(figures, _judge(table, expected, lines))


def _start(system: System, suite: Suite, processes: Processes, table: Path) -> Process:
    if isinstance(system, Streaming):
        command = [sys.executable, "-m", "bench.streamed_table", suite.url, str(table)]
        return processes.start("streaming", command)
    arguments = ["table", "--server", suite.url, "--table", str(table), "--once"]
    return suite.start_program("logreceiver", "table", arguments)


def _messages(lines: int) -> Iterator[Sent]:
    return blocks(lines, _HOSTS, BLOCK_LINES, compressed=True)


def _text_bytes(lines: int) -> int:
    """Return the size of all lines as one text for each host, compressed by zstd -3."""
    texts = {f"host{number:04}": zstandard.ZstdCompressor(3).compressobj() for number in range(8)}
    total = 0
    for message in _messages(lines):
        total += len(texts[message.host].compress(message.lines))
    return total + sum(len(one.flush()) for one in texts.values())


def _judge(table: Path, expected: Expected, lines: int) -> Verdict:
    is_delta = (table / "lines").exists()
    whole = (
        polars.scan_delta(str(table / "lines"))
        if is_delta
        else polars.scan_parquet(table / "**/*.parquet", hive_partitioning=True)
    )
    found = whole.select("host", "line", "sequence", "pos")
    for host, digest in expected.digests.items():
        own = found.filter(polars.col("host") == host).sort("sequence", "pos").collect()["line"]
        text = "".join(f"{line}\n" for line in own).encode()
        if hashlib.blake2b(text).digest() != digest.digest():
            sent = b"".join(one.lines for one in _messages(lines) if one.host == host)
            return judge([sent], text)
    return Verdict(lines, lines)


def _add_streaming(chosen: Sequence[System]) -> tuple[System, ...]:
    """Return us, and Structured Streaming too unless one system was chosen."""
    return (Logship(), Streaming()) if len(chosen) > 1 else (Logship(),)


@compare(Question("table", _ABOUT, ("MB/s", "CPU s/GB")), _add_streaming)
@click.option("--megabytes", multiple=True, type=int, default=(100, 1_000), show_default=True)
@click.option("--hosts", multiple=True, type=int, default=(1_000,), help="Live; 0: none.")
@click.option("--rate", default=5.0, show_default=True, help="Lines per second of a live host.")
@click.option("--seconds", default=240.0, show_default=True, help="Of live hosts that count.")
def main(
    _: Path, megabytes: tuple[int, ...], hosts: tuple[int, ...], rate: float, seconds: float
) -> list[Case]:
    """Measure how fast a table is written; exits with 1 if a line is not as it was sent."""
    allow_descriptors()
    live = [
        Case(
            f"live, {number:,} hosts, {rate:g} lines/s",
            {"hosts": number, "rate": rate, "seconds": seconds},
            partial(measure_live, hosts=number, rate=rate, seconds=seconds),
            alone=True,
        )
        for number in hosts
        if number
    ]
    return [*backlog_cases(measure, megabytes), *live]


if __name__ == "__main__":
    main()
