"""Measure how fast a backlog drains from a host's file to the received file, and what it costs.

The centre runs already and is warm. The clock starts with the agent and stops when all lines are in
the received file and committed, where there is such a thing. Processor time is that of whole
processes, the agent's start included.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import click

from bench.backlog import LINE_BYTES, write_backlog
from bench.charge import Charge
from bench.field.system import LOOPBACK, System
from bench.large import judge_large
from bench.link import Link
from bench.options import Question, compare
from bench.road import HOST
from bench.trial import Case, Outcome
from tests.support.processes import Processes, wait_until
from tests.support.received import received_bytes

_LOOK = 0.01
_ABOUT = """\
From the start of the agent until all lines of a backlog of 200-byte lines are in the received \
file and committed; every byte is checked. CPU: user and system seconds of all processes per GB \
(1e9 bytes) of lines. Peak RSS: of all processes, each when it had most. The backlog was just \
written and is in the page cache; memory that a hypervisor has taken back is brought in before \
the clock starts."""


def drain(
    system: System,
    folder: Path,
    logs: Path,
    line_bytes: int = LINE_BYTES,
    link: Link | None = None,
) -> Outcome:
    """Drain the file in `logs`, of lines of that length, over a link, in an empty folder.

    Raises TookTooLong and ProgramDied.
    """
    (backlog,) = logs.glob("*.log")
    size = backlog.stat().st_size
    with Processes(folder) as processes:
        staged = system.stage(folder, processes, link.address if link else LOOPBACK)
        charge = Charge(staged.centre, size)
        with link.at_the_host() if link else nullcontext():
            agent = staged.start_agent(HOST, logs)
        charge.add("agent", agent)
        wait_until(
            "the backlog is received",
            lambda: received_bytes(staged.output, HOST) >= size,
            120 + size / 2e6,
            charge.programs,
            _LOOK,
        )
        wait_until("it is committed", staged.is_committed, 60, charge.programs, _LOOK)
        seconds, cpu, peak = charge.seconds, charge.per_gb(size), charge.peak()
    figures = {
        "MB/s": size / 1e6 / seconds,
        "lines/s": size / line_bytes / seconds,
        **cpu,
        "peak RSS MiB": peak / 2**20,
    }
    # judged when nothing runs any more that could still write
    return Outcome(figures, judge_large(backlog, staged.output, HOST))


@compare(Question("drain", _ABOUT, ("MB/s", "CPU s/GB")))
@click.option("--megabytes", multiple=True, type=int, default=(100, 400), show_default=True)
@click.option("--alone", multiple=True, type=int, help="The same for us alone.")
def main(folder: Path, megabytes: tuple[int, ...], alone: tuple[int, ...]) -> Iterator[Case]:
    """Measure how fast backlogs of some MB (1e6 bytes) drain.

    Exits with 1 if a line of ours is not as it was written.
    """
    (logs := folder / "logs").mkdir()
    for number in (*megabytes, *alone):
        write_backlog(logs / "backlog.log", number * 1_000_000 // LINE_BYTES)
        parameters = {"megabytes": number, "line_bytes": LINE_BYTES}
        measure = partial(drain, logs=logs)
        yield Case(f"{number:,} MB", parameters, measure, alone=number in alone)


if __name__ == "__main__":
    main()
