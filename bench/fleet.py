"""Measure a fleet of live hosts beside peers: what it costs the centre, and how soon lines come."""

import asyncio
import json
import resource
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from statistics import quantiles

import click

from bench.charge import Charge
from bench.expected import added
from bench.field.logship import Logship
from bench.field.pair import Pair
from bench.field.rsyslog import RSYSLOG_FLEET
from bench.field.system import System
from bench.fleet_hosts import CONNECTED
from bench.fleet_times import Commits, Readable, commits_at
from bench.fleet_wire import WIRES, Plan, Round, host_name, line
from bench.options import Question, compare
from bench.trial import Case, Outcome
from nats_logship.app.files import write_atomic
from nats_logship.wire.subjects import partition_of
from tests.support.oracle import Verdict, judge
from tests.support.processes import Process, Processes, ProgramDied, TookTooLong, wait_until
from tests.support.received import read_segment, received_in_all, segments_by_host

_GENERATORS = 2  # processes
BEGIN = "begin"
"""A file with the monotonic seconds at which hosts begin."""
PARTITIONS = 16
_SILENCE = 10.0  # seconds: who has received nothing for so long has lost what is missing
_UNCOUNTED = 5.0  # seconds at first, of peers
_ABOUT = """\
So many hosts with a connection each write lines of 200 bytes; generators of the same hosts and \
rates speak each system's protocol: ours sends what gathers in the interval that the broker sets, \
rsyslog's a RELP message per line, Fluent Bit's a chunk a second. Latency of lines: from the write \
until the agent has the acknowledgement, until the line can be read in the received file (of a \
hundred hosts), and until the receiver has committed it (ours: files are synced by then; the \
others sync nothing). CPU: user and system time of the centre in % of a core: broker and receiver, \
or the peer's server. PSS and RSS of its processes at the end. The first seconds are not counted: \
five, ours as many as the broker needs to set the interval. Every host's file is compared."""


@dataclass(frozen=True, slots=True)
class _Centre:
    """What receives: its programs and output folder, where it listens; of ours the broker's URL."""

    programs: Mapping[str, Process]
    output: Path
    port: int
    url: str = ""


def _stage(system: System, folder: Path, processes: Processes) -> _Centre:
    match system:
        case Logship():
            ours = system.stage(folder, processes)
            url = ours.suite.url
            return _Centre(ours.centre, ours.output, int(url.rpartition(":")[2]), url)
        case Pair():
            fleet = replace(system, peer=RSYSLOG_FLEET) if system.name == "rsyslog" else system
            theirs = fleet.stage(folder, processes)
            return _Centre(theirs.centre, theirs.output, theirs.server.port)
        case _:
            raise TypeError(f"{system.name} has no wire")


def _measure(
    system: System, folder: Path, plan: Plan, streams: int, slow: float, uncounted: float
) -> Outcome:
    """Have the hosts of a plan, whose port is not known yet, write to a system."""
    if isinstance(system, Logship):
        under = tuple(_slowed(slow)) if slow else ()
        system = replace(system, partitions=PARTITIONS, streams=streams, under=under)
    else:
        plan, uncounted = replace(plan, seconds=plan.seconds - uncounted + _UNCOUNTED), _UNCOUNTED
    with Processes(folder) as processes:
        centre = _stage(system, folder, processes)
        own = replace(plan, wire=system.name, port=centre.port)
        generators = start_hosts(processes, folder, own)
        return asyncio.run(_with_fleet(centre, generators, folder, own, uncounted))


async def _with_fleet(
    centre: _Centre, generators: Sequence[Process], folder: Path, plan: Plan, uncounted: float
) -> Outcome:
    patience = 60 + 4 * plan.seconds
    before = received_in_all(centre.output)
    readable = Readable(centre.output, plan.until)
    async with commits_at(centre.url) as commits:
        begin = time.monotonic() + 1
        write_atomic(folder / BEGIN, str(begin), 0o600)
        watching = asyncio.create_task(readable.watch())
        costs = await _charged(centre.programs, begin + uncounted, begin + plan.seconds)
        for one in generators:
            await asyncio.to_thread(end_hosts, one, patience)
        rounds = read_rounds(folder)
        size = before + plan.until * sum(map(len, sent_by(plan, 0)))
        await _until_received(centre.output, size, patience)
        if centre.url:
            await _until_committed(commits, rounds, patience)
        watching.cancel()
    latency = partial(latencies, plan, begin, uncounted)
    acked = ((host, n, at) for host, _, first, end, at in rounds for n in range(first, end))
    sent = sum(begin + uncounted <= at < begin + plan.seconds for *_, at in rounds)
    figures = {
        **costs,
        **latency("ack", acked),
        **latency("readable", readable.times()),
        **(latency("commit", _committed(commits, rounds)) if centre.url else {}),
        "messages/s": sent / (plan.seconds - uncounted),
    }
    return Outcome(figures, _judged(centre.output, plan))


async def _charged(programs: Mapping[str, Process], begin: float, end: float) -> dict[str, float]:
    await asyncio.sleep(begin - time.monotonic())
    charge = Charge(programs)
    await asyncio.sleep(end - time.monotonic())
    return charge.shares() | charge.memory()


def start_hosts(processes: Processes, folder: Path, plan: Plan) -> list[Process]:
    """Start the generators; they are connected when this returns."""
    edges = [plan.until * number // _GENERATORS for number in range(_GENERATORS + 1)]
    generators = [
        processes.start(
            f"hosts{first}",
            [
                *(sys.executable, "-m", "bench.fleet_hosts"),
                json.dumps(asdict(replace(plan, first=first, until=until))),
                *(folder / f"rounds{first}.json", folder / BEGIN),
            ],
        )
        for first, until in pairwise(edges)
    ]
    connected = lambda: all(one.last_output() == CONNECTED for one in generators)  # noqa: E731
    wait_until("hosts are connected", connected, 120, generators)
    return generators


def end_hosts(generator: Process, patience: float) -> None:
    """Wait until a generator's hosts have sent all; raises TookTooLong, ProgramDied."""
    try:
        code = generator.wait(patience)
    except TookTooLong:
        raise TookTooLong(f"all is acknowledged: not within {patience:g} s") from None
    if code:
        raise ProgramDied(f"{generator.name}: {generator.last_output()}")


def read_rounds(folder: Path) -> list[Round]:
    """Return what the hosts of all generators have sent, once they have ended."""
    return [
        tuple(entry)
        for path in sorted(folder.glob("rounds*.json"))
        for entry in json.loads(path.read_text("utf-8"))
    ]


async def _until_received(output: Path, size: int, patience: float) -> None:
    """Wait for bytes; if no more come, the verdict says what is missing."""
    deadline, before, grown_at = time.monotonic() + patience, -1, time.monotonic()
    while (now := received_in_all(output)) < size and time.monotonic() < deadline:
        if now > before:
            before, grown_at = now, time.monotonic()
        elif time.monotonic() > grown_at + _SILENCE:
            return
        await asyncio.sleep(0.2)


async def _until_committed(commits: Commits, rounds: Sequence[Round], patience: float) -> None:
    deadline = time.monotonic() + patience
    by_sequence = sorted(rounds, key=lambda one: one[1])
    last = {partition_of(host_name(host), PARTITIONS): number for host, number, *_ in by_sequence}
    while any(commits.of(partition, sequence) is None for partition, sequence in last.items()):
        if time.monotonic() > deadline:
            raise TookTooLong(f"what hosts sent is committed: not within {patience:g} s")
        await asyncio.sleep(0.1)


def _committed(commits: Commits, rounds: Sequence[Round]) -> Iterator[tuple[int, int, float]]:
    for host, sequence, first, until, _ in rounds:
        at = commits.of(partition_of(host_name(host), PARTITIONS), sequence) or 0
        yield from ((host, position, at) for position in range(first, until))


def latencies(
    plan: Plan, begin: float, uncounted: float, name: str, times: Iterable[tuple[int, int, float]]
) -> dict[str, float]:
    """Return the median and p99 of lines written after the first seconds; 0 if there are none."""
    taken = [
        at - begin - written
        for host, position, at in times
        if (written := plan.written(host, position)) >= uncounted
    ]
    cuts = quantiles(taken, n=100) if len(taken) > 1 else [0.0] * 99
    return {f"{name} p50 ms": 1e3 * cuts[49], f"{name} p99 ms": 1e3 * cuts[98]}


def sent_by(plan: Plan, host: int) -> list[bytes]:
    """Return the lines that a host writes."""
    return [line(host, position) for position in range(plan.lines)]


def _judged(output: Path, plan: Plan) -> Verdict:
    segments = segments_by_host(output)
    return added(
        judge(
            [b"".join(sent_by(plan, host))],
            b"".join(map(read_segment, segments.get(host_name(host), ()))),
        )
        for host in range(plan.until)
    )


def _slowed(milliseconds: float) -> list[str]:
    """Return a command that holds the thread of each fsync for so long; others go on."""
    calls = "fsync,fdatasync"
    command = ["strace", "-D", "-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null"]
    longer = f"inject={calls}:delay_exit={milliseconds * 1000:.0f}"
    return [*command, "-e", f"trace={calls}", "-e", longer]


def _with_wire(systems: Sequence[System]) -> list[System]:
    return [one for one in systems if one.name in WIRES]


@compare(Question("fleet", _ABOUT, ("CPU %", "readable p99 ms", "PSS MiB")), _with_wire, runs=1)
@click.option("--hosts", multiple=True, type=int, default=(100, 1_000, 5_000), show_default=True)
@click.option("--rate", multiple=True, type=float, default=(1.0, 5.0), show_default=True)
@click.option("--streams", multiple=True, type=int, default=(1,), show_default=True)
@click.option(
    "--slow",
    multiple=True,
    type=float,
    default=(0.0,),
    show_default=True,
    help="Milliseconds by which each fsync of the broker is longer, by strace.",
)
@click.option("--seconds", default=20.0, show_default=True, help="Of lines that are counted.")
@click.option("--settle", default=30.0, show_default=True, help="Seconds of ours before that.")
@click.option("--interval", type=float, help="Seconds between our rounds, instead of the broker's.")
def main(
    _: Path,
    hosts: tuple[int, ...],
    rate: tuple[float, ...],
    streams: tuple[int, ...],
    slow: tuple[float, ...],
    seconds: float,
    settle: float,
    interval: float | None,
) -> Iterator[Case]:
    """Measure live hosts beside rsyslog and Fluent Bit.

    Several streams, or a slow disk, are ours alone. Exits with 1 when a line of ours is not as it
    was sent.
    """
    if any(slow) and shutil.which("strace") is None:
        raise click.UsageError(
            "a slow disk needs strace: apt install strace, or leave it out with --slow 0"
        )
    allow_descriptors()
    for number, lines, delay, count in product(hosts, rate, slow, streams):
        plan = Plan("", 0, 0, number, PARTITIONS, lines, settle + seconds, interval)
        measure = partial(_measure, plan=plan, streams=count, slow=delay, uncounted=settle)
        yield Case(
            f"{number:,} hosts, {lines:g} line{'s'[: lines != 1]}/s{_of(count, delay)}",
            {"hosts": number, "rate": lines, "streams": count, "slow": delay, "seconds": seconds},
            measure,
            alone=count != 1 or delay > 0,
        )


def allow_descriptors() -> None:
    """Let all that is started from here on have as many descriptors as the system allows."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _of(streams: int, slow: float) -> str:
    many = f", {streams} streams" if streams > 1 else ""
    return f"{many}, slow disk" if slow else many


if __name__ == "__main__":
    main()
