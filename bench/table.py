"""Measure what `logreceiver table` costs: the lines of a stream, in a Delta table."""

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import click
import polars
import zstandard

from bench.backlog import LINE_BYTES
from bench.expected import Expected
from bench.field.system import System
from bench.fill import BLOCK_LINES, Sent, backlog_cases, blocks, fill
from bench.machine import touch_memory
from bench.options import Question, compare, ours
from bench.replay import seconds_until_end
from bench.trial import Case, Outcome
from tests.support.oracle import Verdict, judge
from tests.support.processes import Processes
from tests.support.suite import Suite

_GB = 1e9
_HOSTS = 8
_ABOUT = """\
`logreceiver table --once` of all that is in the stream, compressed blocks of 256 KiB from eight \
hosts: from the start of the program (Spark's too) to its end; the bytes of every host are read by \
Polars and checked. Ours alone. CPU: user and system seconds of the writer and its Spark per GB \
(1e9 bytes) of lines; size: files of the table to the same lines as one text by zstd -3."""


def measure(_system: System, folder: Path, lines: int) -> Outcome:
    """Fill a stream and write its table, in an empty folder; raises TookTooLong, ProgramDied."""
    expected, table = Expected(), folder / "table"
    size = lines * LINE_BYTES
    with Processes(folder) as processes:
        suite = Suite(folder, processes, partitions=1)
        suite.start_broker()
        fill(int(suite.url.rpartition(":")[2]), expected.note(_messages(lines)))
        touch_memory(size)
        began = time.monotonic()
        arguments = ["table", "--server", suite.url, "--table", str(table), "--once"]
        program = suite.start_program("logreceiver", "table", arguments)
        cpu = seconds_until_end(program, 120 + size / 2e6)
        seconds = time.monotonic() - began
    stored = sum(path.stat().st_size for path in table.rglob("*.parquet"))
    figures = {
        "MB/s": size / 1e6 / seconds,
        "s": seconds,
        "CPU s/GB": cpu / (size / _GB),
        "size": stored / _text_bytes(lines),
    }
    return Outcome(figures, _judge(table, expected, lines))


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
    found = polars.scan_delta(str(table / "lines")).select("host", "line", "sequence", "pos")
    for host, digest in expected.digests.items():
        own = found.filter(polars.col("host") == host).sort("sequence", "pos").collect()["line"]
        text = "".join(f"{line}\n" for line in own).encode()
        if hashlib.blake2b(text).digest() != digest.digest():
            sent = b"".join(one.lines for one in _messages(lines) if one.host == host)
            return judge([sent], text)
    return Verdict(lines, lines)


@compare(Question("table", _ABOUT, ("MB/s", "CPU s/GB")), ours)
@click.option("--megabytes", multiple=True, type=int, default=(100, 1_000), show_default=True)
def main(_: Path, megabytes: tuple[int, ...]) -> list[Case]:
    """Measure how fast a table is written; exits with 1 if a line is not as it was sent."""
    return backlog_cases(measure, megabytes)


if __name__ == "__main__":
    main()
