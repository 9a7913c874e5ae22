"""Measure what one agent costs its host: many of them, each with a file and few lines."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import click

from bench.charge import Charge
from bench.expected import added
from bench.field.system import System
from bench.fleet_wire import host_name
from bench.options import Question, compare
from bench.road import Road
from bench.trial import Case, Outcome
from tests.support.oracle import judge_host
from tests.support.processes import Processes, wait_until
from tests.support.received import received_bytes

_PATIENCE = 120.0  # seconds until all is received
_ABOUT = """\
So many agents on one machine, each of a host with one file, and one centre; lines of 200 bytes \
come to each file at a steady rate. Means of the agents: CPU is user and system time in % of a \
core; of PSS and RSS, both at the end, PSS divides a shared page by those who share it. Every byte \
is checked."""


def agents(
    system: System, folder: Path, count: int, rate: int, settle: float, seconds: float
) -> Outcome:
    """Have so many agents follow a file each, in an empty folder.

    Raises TookTooLong and ProgramDied.
    """
    logs, place = folder / "logs", folder / "system"
    place.mkdir()
    files = {name: logs / name / "app.log" for name in map(host_name, range(count))}
    for path in files.values():
        path.parent.mkdir(parents=True)
        path.write_bytes(b"the first line\n")
    with Processes(place) as processes:
        staged = system.stage(place, processes)
        programs = {name: staged.start_agent(name, path.parent) for name, path in files.items()}
        watched = [*staged.centre.values(), *programs.values()]
        received = partial(_is_received, staged.output, files)
        wait_until("all agents ship", received, _PATIENCE, watched)
        road = Road([*files.values()], rate * count, staged.output, host_name(0))
        road.write_for(settle)
        charge = Charge(programs)
        road.write_for(seconds)
        measured = {"CPU %": charge.shares()["CPU %"], **charge.memory()}
        wait_until("all is received", received, _PATIENCE, watched)
    verdict = added(judge_host([path], staged.output, name) for name, path in files.items())
    return Outcome({f"{name} of an agent": of / count for name, of in measured.items()}, verdict)


def _is_received(output: Path, files: Mapping[str, Path]) -> bool:
    return all(received_bytes(output, name) >= one.stat().st_size for name, one in files.items())


@compare(Question("agents", _ABOUT, ("CPU % of an agent", "RSS MiB of an agent")))
@click.option("--agents", "count", default=50, show_default=True)
@click.option("--rate", "rates", multiple=True, type=int, default=(0, 1, 5), show_default=True)
@click.option("--seconds", default=30.0, show_default=True, help="Of lines that are counted.")
@click.option("--settle", default=15.0, show_default=True, help="Seconds of lines before that.")
def main(
    _: Path, count: int, rates: tuple[int, ...], seconds: float, settle: float
) -> Iterator[Case]:
    """Measure what one of many agents costs; exits with 1 if a line of ours is not as written."""
    for rate in rates:
        parameters = {"agents": count, "lines_per_second": rate, "seconds": seconds}
        measure = partial(agents, count=count, rate=rate, settle=settle, seconds=seconds)
        yield Case(f"{rate} line{'s'[: rate != 1]}/s", parameters, measure, grows=True)


if __name__ == "__main__":
    main()
