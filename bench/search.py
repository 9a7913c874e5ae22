"""Measure `logreceiver search`: in a table, in received files beside ripgrep, and in a stream."""

import resource
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import click
import duckdb
from deltalake import DeltaTable

from bench.field.system import System
from bench.fill import BLOCK_LINES, Sent, backlog_cases, blocks, fill
from bench.options import Question, compare, ours
from bench.trial import Case, Outcome
from nats_logship.history import History, Query
from tests.support.oracle import Verdict
from tests.support.processes import Processes, installed
from tests.support.suite import Suite

_HOSTS = 8
_SMALL = 3  # lines of a small message
_ABOUT = """\
`logreceiver search` of a line that is there once, of 100 last lines, and of a line with 50 lines \
before and after: in a table, in received files that are compressed by zstd, and in a stream; \
ripgrep (`rg -z`) searches the same files. Seconds and CPU seconds from the start of the program \
to its end; each has to find the very lines. Count by host and around: the seconds that a program \
which runs already takes to open the table, and to count or to find 50 lines around a known one."""


def measure(_system: System, folder: Path, lines: int, per_message: int) -> Outcome:
    """Fill a stream, receive it, and search, in an empty folder; raises ProgramDied."""
    with Processes(folder) as processes:
        suite = Suite(folder, processes, partitions=1)
        suite.start_broker()
        fill(int(suite.url.rpartition(":")[2]), _messages(lines, per_message))
        wanted = f"{lines // 2:010d} "  # each line begins with its number
        stream = {"--server": suite.url}
        figures = _search("stream", stream, wanted)
        table, output = folder / "table", folder / "received"
        _receive(suite, "table", "table", "--table", str(table), "--once")
        files = ("--partition", "0", "--output", str(output), "--compress", "zstd", "--once")
        _receive(suite, "receiver", *files, "--rotate-size", "100MB")
    figures |= _search("table", {"--table": str(table)}, wanted)
    figures |= _ask_table(table, wanted, lines)
    figures |= _search("files", {"--output": str(output)}, wanted)
    if program := shutil.which("rg"):
        figures |= _time("rg", [program, "--no-ignore", "-z", wanted, str(output)], 1)
    return Outcome(figures, Verdict(lines, lines))


def _messages(lines: int, per_message: int) -> Iterator[Sent]:
    return blocks(lines, _HOSTS, per_message, compressed=per_message > _SMALL)


def _receive(suite: Suite, name: str, *arguments: str) -> None:
    program = suite.start_program("logreceiver", name, [*arguments, "--server", suite.url])
    program.wait(600)


def _search(name: str, where: Mapping[str, str], wanted: str) -> dict[str, float]:
    given = [text for pair in where.items() for text in pair]
    offline = [] if "--server" in where else ["--no-stream"]
    command = [installed("logreceiver"), "search", *given, *offline]
    return {
        **_time(name, [*command, "--match", wanted], 1),
        **_time(f"{name}, last 100", [*command, "--host", "host0003", "--limit", "100"], 100),
        **_time(f"{name}, context", [*command, "--match", wanted, "--context", "50"], 101),
    }


def _ask_table(table: Path, wanted: str, lines: int) -> dict[str, float]:
    """Return seconds in which this program counts the lines by host, and finds those around one."""
    began = time.monotonic()
    known = DeltaTable(table / "lines").to_pyarrow_dataset()
    counts = duckdb.from_arrow(known).aggregate("host, count(*)")
    assert sum(count for _, count in counts.fetchall()) == lines
    counted = time.monotonic()
    with History.open(str(table)) as history:
        [line] = history.find(Query(match=wanted))
    began_around = time.monotonic()
    with History.open(str(table)) as history:
        assert len(history.around(line, 50, 50)) == 101
    ended = time.monotonic()
    return {"table, count by host s": counted - began, "table, around s": ended - began_around}


def _time(name: str, command: list[str], lines: int) -> dict[str, float]:
    """Return seconds and CPU seconds of a command that prints so many lines."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    found = subprocess.run(command, capture_output=True, check=True).stdout
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    assert (printed := found.count(b"\n")) == lines, f"{name} printed {printed} lines"
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {f"{name} s": ended - began, f"{name} CPU s": used}


@compare(Question("search", _ABOUT, ("table s", "files s", "stream s", "rg s")), ours)
@click.option("--megabytes", multiple=True, type=int, default=(1_000,), show_default=True)
@click.option("--small", multiple=True, type=int, default=(50,), show_default=True, help="MB.")
def main(_: Path, megabytes: tuple[int, ...], small: tuple[int, ...]) -> list[Case]:
    """Measure how fast lines are found; exits with 1 if a search finds others."""
    large = backlog_cases(partial(measure, per_message=BLOCK_LINES), megabytes)
    cases = backlog_cases(partial(measure, per_message=_SMALL), small)
    return [*large, *(Case(f"{one.name}, small", one.parameters, one.measure) for one in cases)]


if __name__ == "__main__":
    main()
