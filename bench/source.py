"""Measure what a query of the data source costs: lines, sections, and small messages."""

import json
import os
import sys
import time
import zlib
from functools import partial
from pathlib import Path

import click
from pyspark.sql import SparkSession

from bench.backlog import LINE_BYTES
from bench.cpu import cpu_seconds
from bench.field.system import System
from bench.fill import BLOCK_LINES, Sent, backlog_cases, blocks, fill
from bench.machine import touch_memory
from bench.options import Question, compare, ours
from bench.trial import Case, Outcome
from pyspark_jetstream import DefaultSource
from receiver.spark.jvm import run_jvm
from receiver.spark.session import spark_context
from tests.support.oracle import Verdict
from tests.support.processes import Process, Processes, ProgramDied, when_began
from tests.support.suite import Suite

_KINDS = {"lines": BLOCK_LINES, "sections": BLOCK_LINES, "small messages": 7}
_PROGRAM = "import sys; from bench.source import query; query(*sys.argv[1:])"
_ABOUT = """\
A batch query in Spark SQL of all in the stream, all columns: lines (`explode`) or sections of \
compressed blocks of 256 KiB, lines of messages of 1.4 kB. Each counts all lines and adds up \
CRC-32. CPU: user and system seconds of JVM and Pythons per GB (1e9 bytes) of lines, by the \
second query of a session; the first one apart, without the start."""


def measure(_system: System, folder: Path, lines: int, kind: str) -> Outcome:
    """Fill a stream and query it, in an empty folder; raises TookTooLong, ProgramDied."""
    digests, size, found = list[int](), lines * LINE_BYTES, folder / "found"

    def note(message: Sent) -> Sent:
        texts = [message.lines] if kind == "sections" else message.lines.splitlines()
        digests.append(sum(map(zlib.crc32, texts)))
        return message

    with Processes(folder) as processes:
        suite = Suite(folder, processes, partitions=1)
        suite.start_broker()
        messages = blocks(lines, 8, _KINDS[kind], compressed=kind != "small messages")
        fill(int(suite.url.rpartition(":")[2]), map(note, messages))
        touch_memory(size)
        command = [sys.executable, "-c", _PROGRAM, suite.url, kind, str(found)]
        program = processes.start("spark", command)
        if code := program.wait(120 + size / 1e6):
            raise ProgramDied(f"spark ended with {code}: {program.last_output()}")
    figures, verdict = dict[str, float](), Verdict(lines, lines)
    for name, (seconds, used, count, digest) in json.loads(found.read_bytes()).items():
        figures |= {f"MB/s{name}": size / 1e6 / seconds, f"CPU s/GB{name}": used / size * 1e9}
        if (count, digest) != (lines, sum(digests)):
            verdict = Verdict(lines, count, bytes_equal=False)
    return Outcome(figures, verdict)


def query(url: str, kind: str, output: str) -> None:
    """Write seconds, CPU seconds, lines and digest of two equal queries, in a program alone."""
    own = os.getsid(0)
    tree = Process("spark", (), Path(), {}, sessions={own: when_began(own)})
    count, column = ("sum(lines)", "payload") if kind == "sections" else ("count(*)", "line")
    found, is_lines = {}, kind != "sections"
    with run_jvm("spark://") as jvm, spark_context("local[*]", jvm=jvm) as context:
        spark = SparkSession(context)
        spark.dataSource.register(DefaultSource)
        for name in (", first query", ""):
            used, began = cpu_seconds(tree), time.monotonic()
            rows = spark.read.format("jetstream").options(servers=url, explode=is_lines).load()
            (row,) = rows.selectExpr(count, f"sum(crc32({column}))").collect()
            found[name] = (time.monotonic() - began, cpu_seconds(tree) - used, *row)
    Path(output).write_text(json.dumps(found))


@compare(Question("source", _ABOUT, ("MB/s", "CPU s/GB")), ours)
@click.option("--megabytes", multiple=True, type=int, default=(1_000,), show_default=True)
def main(_: Path, megabytes: tuple[int, ...]) -> list[Case]:
    """Measure what queries cost; exits with 1 if one counts or reads other lines."""
    every = [(kind, backlog_cases(partial(measure, kind=kind), megabytes)) for kind in _KINDS]
    named = ((f"{one.name}, {kind}", one) for kind, cases in every for one in cases)
    return [Case(name, one.parameters, one.measure) for name, one in named]


if __name__ == "__main__":
    main()
