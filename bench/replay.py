"""Measure how fast `logreceiver replay` writes lines of the stream again, and what it costs."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from bench.backlog import LINE_BYTES
from bench.cpu import cpu_seconds
from bench.expected import Expected
from bench.field.system import System
from bench.fill import BLOCK_LINES, Sent, backlog_cases, blocks, fill
from bench.machine import touch_memory
from bench.options import Question, compare, ours
from bench.trial import Case, Outcome
from tests.support.processes import Process, Processes, ProgramDied, wait_until
from tests.support.suite import Suite

_GB = 1e9
_HOSTS = 5
_ABOUT = """\
`logreceiver replay` of all that is in the stream, compressed blocks of 256 KiB from five \
hosts, into files: from its start to its end; every host's files are checked. Ours alone: the \
others keep nothing that could be written once more. CPU: user and system seconds per GB (1e9 \
bytes) of lines."""

_LOOK = 0.05


def seconds_until_end(program: Process, most: float) -> float:
    """Return the processor time of a program that ends by itself within so many seconds.

    What it uses after the last sample, 50 ms before its end at most, is not seen. Raises
    `TookTooLong`, and `ProgramDied` where it ends with another code than 0.
    """
    used = 0.0
    with suppress(ProgramDied):

        def has_ended() -> bool:
            nonlocal used
            used = max(used, cpu_seconds(program))
            return not program.is_running()

        wait_until(f"{program.name} has ended", has_ended, most, [program], _LOOK)
    if code := program.wait(1):
        raise ProgramDied(f"{program.name} ended with {code}: {program.last_output()}")
    return used


def replay(_system: System, folder: Path, lines: int) -> Outcome:
    """Fill a stream and replay it, in an empty folder; raises TookTooLong and ProgramDied."""
    expected = Expected()
    size = lines * LINE_BYTES
    with Processes(folder) as processes:
        suite = Suite(folder, processes, partitions=1)
        broker = suite.start_broker()
        fill(int(suite.url.rpartition(":")[2]), expected.note(_messages(lines)))
        output = folder / "replayed"
        touch_memory(size)
        before, began = cpu_seconds(broker), time.monotonic()
        since = ["--since", "earliest", "--output", str(output)]
        arguments = ["replay", "--server", suite.url, *since]
        program = suite.start_program("logreceiver", "replay", arguments)
        cpu = seconds_until_end(program, 120 + size / 2e6)
        seconds = time.monotonic() - began
        used = {"broker": cpu_seconds(broker) - before, "replay": cpu}
    per_gb = {f"CPU s/GB {name}": spent / (size / _GB) for name, spent in used.items()}
    figures = {"MB/s": size / 1e6 / seconds, "s": seconds, "CPU s/GB": sum(per_gb.values())}
    verdict = expected.judge(output, _messages(lines))
    return Outcome({**figures, **per_gb}, verdict)


def _messages(lines: int) -> Iterator[Sent]:
    return blocks(lines, _HOSTS, BLOCK_LINES, compressed=True)


@compare(Question("replay", _ABOUT, ("MB/s", "CPU s/GB")), ours)
@click.option("--megabytes", multiple=True, type=int, default=(100, 1_000), show_default=True)
def main(_: Path, megabytes: tuple[int, ...]) -> list[Case]:
    """Measure how fast lines are replayed; exits with 1 if a line is not as it was sent."""
    return backlog_cases(replay, megabytes)


if __name__ == "__main__":
    main()
