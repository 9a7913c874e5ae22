"""Measure what following silent files costs, and a start with all of them known.

A line is written to each file, and all are received, before the cost is looked at. The centre's
share is part of it.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from bench.charge import Charge
from bench.cpu import quiet_after, resident_bytes
from bench.field.logship import Logship
from bench.field.system import System
from bench.options import Question, compare
from bench.road import HOST, make_folders
from bench.trial import Case, Outcome
from tests.support.oracle import Verdict, judge_host
from tests.support.processes import Process, Processes, TookTooLong, wait_until
from tests.support.received import received_bytes

_PATIENCE = 120.0  # seconds until all is received
_QUIET, _EVERY = 0.05, 1.0  # CPU seconds in so many seconds
_ABOUT = """\
One line in each file, all received; then nothing is written. CPU: user and system time of all \
processes in % of a core. RSS: of the agent at the end of that. Start: CPU seconds of an agent \
that is started again with all files known and a new line in one of them, until that is \
received and the agent uses no more than it did; of who then repeats lines, or never comes to \
rest, there is none. Cases of a receiver are ours alone: it has received a line of each partition; \
PSS and RSS are of all its processes at the end."""


def idle(system: System, folder: Path, files: int, settle: float, seconds: float) -> Outcome:
    """Let a system settle, and watch it doing nothing, in an empty folder.

    Raises TookTooLong and ProgramDied.
    """
    logs, place = make_folders(folder)
    paths = [logs / f"app{number:05}.log" for number in range(files)]
    size = sum(map(_append, paths))
    with Processes(place) as processes:
        staged = system.stage(place, processes)
        agent = staged.start_agent(HOST, logs)
        programs = {**staged.centre, "agent": agent}
        received = partial(_wait_for, staged.output, list(programs.values()))
        received("a line of each file is received", size)
        time.sleep(settle)
        charge = Charge(programs)
        time.sleep(seconds)
        shares, resident = charge.shares(), resident_bytes(agent)
        verdict = judge_host(paths, staged.output, HOST)
        agent.stop()
        size += _append(paths[-1])
        agent.start()
        start = None
        with suppress(TookTooLong):
            received("the new line is received", size)
            start = quiet_after(agent, _QUIET + _EVERY * shares["CPU % agent"] / 100, _EVERY)
    again = judge_host(paths, staged.output, HOST)
    if system.guarantees.survives_kill:
        verdict = again  # of who promises nothing of a second start it is no part of what is asked
    figures = {**shares, "RSS MiB agent": resident / 2**20}
    if start is not None and again.is_complete:
        figures["start CPU s"] = start
    return Outcome(figures, verdict)


def idle_receiver(system: System, folder: Path, partitions: int, seconds: float) -> Outcome:
    """Watch our broker and a receiver of so many partitions, which has a line of each."""
    assert isinstance(system, Logship)
    with Processes(folder) as processes:
        centre = replace(system, partitions=partitions).stage(folder, processes).centre
        charge, receiver = Charge(centre), Charge({"receiver": centre["receiver"]})
        time.sleep(seconds)
        memory = {f"{name} receiver": size for name, size in receiver.memory().items()}
        return Outcome(charge.shares() | memory, Verdict(0, 0))


def _wait_for(output: Path, programs: list[Process], what: str, size: int) -> None:
    wait_until(what, lambda: received_bytes(output, HOST) >= size, _PATIENCE, programs)


def _append(path: Path) -> int:
    line = b"%b started %d and has nothing to say\n" % (path.name.encode(), time.monotonic_ns())
    with path.open("ab") as file:
        return file.write(line)


@compare(Question("idle", _ABOUT, ("CPU %", "CPU % agent", "RSS MiB agent")))
@click.option("--files", multiple=True, type=int, default=(1, 1_000, 10_000), show_default=True)
@click.option("--partitions", multiple=True, type=int, default=(1, 10, 16, 64), show_default=True)
@click.option("--seconds", default=60.0, show_default=True, help="How long to watch.")
@click.option("--settle", default=15.0, show_default=True, help="Seconds to wait before that.")
def main(
    _: Path, files: tuple[int, ...], partitions: tuple[int, ...], seconds: float, settle: float
) -> Iterator[Case]:
    """Measure what silent files, and idle receivers, cost.

    Exits with 1 if a line of ours is not as it was written.
    """
    for number in files:
        parameters = {"files": number, "seconds": seconds}
        measure = partial(idle, files=number, settle=settle, seconds=seconds)
        yield Case(f"{number:,} file{'s'[: number > 1]}", parameters, measure, grows=True)
    for number in partitions:
        parameters = {"partitions": number, "seconds": seconds}
        watch = partial(idle_receiver, partitions=number, seconds=seconds)
        name = f"a receiver of {number} partition{'s'[: number > 1]}"
        yield Case(name, parameters, watch, alone=True)


if __name__ == "__main__":
    main()
