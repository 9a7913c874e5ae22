"""Measure a fleet of live hosts: how soon a line is acknowledged and in its file."""

import asyncio
import json
import shutil
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import quantiles

import click
import nats
from nats.aio.msg import Msg

from bench.charge import Charge
from bench.field.system import System
from bench.fleet_hosts import Plan, host_name, line
from bench.options import Field, Question, field_options
from bench.trial import Case, Outcome
from nats_logship.wire.offset import Offset
from nats_logship.wire.streams import OFFSETS_BUCKET
from tests.support.oracle import Verdict, judge
from tests.support.processes import Process, Processes, TookTooLong, wait_until
from tests.support.received import read_segment, segments_by_host
from tests.support.suite import Suite

_PROCESSES = 2
_PARTITIONS = 16
_UNCOUNTED = 5.0  # seconds at first
_ABOUT = """\
So many hosts with a connection each write five lines of 200 bytes a second; what has gathered \
leaves when the round before is acknowledged. Latency: of a round's oldest line, from its write \
to the broker's acknowledgement, and to the commit of the receiver that covers it (files are \
synced by then); the first five seconds are not counted. Slow disk: each fsync of the broker \
takes 2 ms longer. CPU: user and system time of broker and receiver in % of a core. Every \
host's file is compared. Ours alone."""
_QUESTION = Question("fleet", _ABOUT, ("file p99 ms", "CPU %"))
Round = tuple[int, int, float, float, float]


class _Commits:
    """When each partition's offset was committed, as core NATS delivers it."""

    def __init__(self) -> None:
        self._times: dict[str, list[float]] = {}
        self._next: dict[str, list[int]] = {}

    def receive(self, subject: str, value: bytes) -> None:
        """Take note of an entry of the bucket."""
        key = subject.rpartition(".")[2]
        self._times.setdefault(key, []).append(time.monotonic())
        self._next.setdefault(key, []).append(Offset.decode(value).next)

    def of(self, partition: int, sequence: int) -> float | None:
        """Return when a message was committed; None while it is not."""
        at = bisect_right(self._next.get(f"p{partition}", []), sequence)
        times = self._times.get(f"p{partition}", [])
        return times[at] if at < len(times) else None


@asynccontextmanager
async def _listening(url: str) -> AsyncIterator[_Commits]:
    commits = _Commits()
    client = await nats.connect(url)

    async def receive(message: Msg) -> None:
        commits.receive(message.subject, message.data)

    await client.subscribe(f"$KV.{OFFSETS_BUCKET}.>", cb=receive)
    try:
        yield commits
    finally:
        await client.close()


@contextmanager
def _fleet(folder: Path, plans: Sequence[Plan]) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "bench.fleet_hosts"]
    running = [
        subprocess.Popen(
            [*command, json.dumps(asdict(plan)), str(folder / f"rounds{number}.json")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, plan in enumerate(plans)
    ]
    try:
        yield running
    finally:
        for one in running:
            one.kill()
            one.wait()


def _measure(
    _system: System,
    folder: Path,
    hosts: int,
    streams: int,
    slow: float,
    rate: float,
    seconds: float,
) -> Outcome:
    with Processes(folder) as processes:
        suite = Suite(folder, processes, _PARTITIONS)
        under = _slowed(slow) if slow else ()
        broker = suite.start_broker("--streams", str(streams), under=under)
        receiver = suite.start_receiver(
            range(_PARTITIONS), "--rotate-size", "0", "--rotate-every", "0"
        )
        suite.wait_for_receiver(receiver, range(_PARTITIONS))
        _warm_up(suite, receiver)
        return asyncio.run(
            _with_fleet(suite, {"broker": broker, "receiver": receiver}, hosts, rate, seconds)
        )


def _warm_up(suite: Suite, receiver: Process) -> None:
    """Have a task of each partition receive a line: Spark makes its workers with the first ones."""
    last = {n: suite.publish(f"logs.p{n}.warm-up{n}", b"a line\n") for n in range(_PARTITIONS)}

    def is_received() -> bool:
        offsets = {number: suite.offset(number) for number in last}
        return all(one is not None and one.next > last[number] for number, one in offsets.items())

    wait_until("each partition has received a line", is_received, 120, [receiver])


async def _with_fleet(
    suite: Suite, centre: Mapping[str, Process], hosts: int, rate: float, seconds: float
) -> Outcome:
    edges = [hosts * number // _PROCESSES for number in range(_PROCESSES + 1)]
    port = int(suite.url.rpartition(":")[2])
    plans = [
        Plan(port, first, until, _PARTITIONS, rate, seconds) for first, until in pairwise(edges)
    ]
    patience = 120 + 4 * seconds
    async with _listening(suite.url) as commits:
        with _fleet(suite.folder, plans) as fleet:
            for one in fleet:
                await _expect(one, "connected", 120)
            charge = Charge(centre)
            begin = time.monotonic() + 1
            for one in fleet:
                _send(one, f"{begin}\n")
            await asyncio.sleep(1 + seconds)
            used, passed = sum(charge.cpu().values()), charge.seconds
            for one in fleet:
                await _expect(one, "done", patience)
        rounds = _rounds(suite.folder)
        await _committed(commits, rounds, patience)
    counted = [one for one in rounds if one[2] >= begin + _UNCOUNTED]
    if len(counted) < 2:
        raise TookTooLong(f"fewer than two rounds began after the first {_UNCOUNTED:g} s")
    figures = {
        **_latency("ack", [acked - oldest for _, _, oldest, _, acked in counted]),
        **_latency("file", [(commits.of(p, s) or 0) - oldest for p, s, oldest, _, _ in counted]),
        "rounds/s": len(rounds) / (max(one[4] for one in rounds) - begin),
        "CPU %": 100 * used / passed,
        "peak RSS MiB": charge.peak() / 2**20,
    }
    return Outcome(figures, _judged(suite.output, hosts, int(rate * seconds) + 1))


def _rounds(folder: Path) -> list[Round]:
    return [
        tuple(entry)
        for path in sorted(folder.glob("rounds*.json"))
        for entry in json.loads(path.read_text("utf-8"))
    ]


async def _committed(commits: _Commits, rounds: Sequence[Round], patience: float) -> None:
    deadline = time.monotonic() + patience
    last = {partition: sequence for partition, sequence, *_ in sorted(rounds)}
    while any(commits.of(partition, sequence) is None for partition, sequence in last.items()):
        if time.monotonic() > deadline:
            raise TookTooLong(f"what hosts sent is committed: not within {patience:g} s")
        await asyncio.sleep(0.1)


async def _expect(one: "subprocess.Popen[str]", expected: str, patience: float) -> None:
    assert one.stdout is not None
    answer = await asyncio.wait_for(asyncio.to_thread(one.stdout.readline), patience)
    if answer.strip() != expected:
        raise TookTooLong(f"hosts: {answer.strip() or 'ended'} instead of {expected}")


def _send(one: "subprocess.Popen[str]", text: str) -> None:
    assert one.stdin is not None
    one.stdin.write(text)
    one.stdin.flush()


def _latency(name: str, seconds: Sequence[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=100)
    return {f"{name} p50 ms": 1e3 * cuts[49], f"{name} p99 ms": 1e3 * cuts[98]}


def _judged(output: Path, hosts: int, lines: int) -> Verdict:
    segments = segments_by_host(output)
    for number in range(hosts):
        written = b"".join(line(number, position) for position in range(lines))
        received = b"".join(map(read_segment, segments.get(host_name(number), ())))
        if received != written:
            return judge([written], received)
    return Verdict(hosts * lines, hosts * lines)


def _slowed(milliseconds: float) -> list[str]:
    """Return a command that holds the thread of each fsync for so long; others go on."""
    calls = "fsync,fdatasync"
    command = ["strace", "-D", "-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null"]
    longer = f"inject={calls}:delay_exit={milliseconds * 1000:.0f}"
    return [*command, "-e", f"trace={calls}", "-e", longer]


@click.command()
@click.option("--hosts", multiple=True, type=int, default=(100, 1_000, 5_000), show_default=True)
@click.option("--streams", multiple=True, type=int, default=(1, 4, 16), show_default=True)
@click.option(
    "--slow",
    multiple=True,
    type=float,
    default=(0.0, 2.0),
    show_default=True,
    help="Milliseconds by which each fsync of the broker is longer, by strace.",
)
@click.option("--rate", default=5.0, show_default=True, help="Lines a second and host.")
@click.option("--seconds", default=20.0, show_default=True, help="How long hosts write.")
@field_options
def main(
    field: Field,
    hosts: tuple[int, ...],
    streams: tuple[int, ...],
    slow: tuple[float, ...],
    rate: float,
    seconds: float,
) -> None:
    """Measure what live hosts get; exits with 1 when a line is not as it was sent."""
    if any(slow) and shutil.which("strace") is None:
        raise click.UsageError(
            "a slow disk needs strace: apt install strace, or leave it out with --slow 0"
        )
    cases = [
        Case(
            f"{number:,} hosts, {'slow' if delay else 'plain'} disk, "
            f"{count} stream{'s'[: count > 1]}",
            {"hosts": number, "streams": count, "slow": delay, "rate": rate, "seconds": seconds},
            partial(_measure, hosts=number, streams=count, slow=delay, rate=rate, seconds=seconds),
        )
        for number in hosts
        for delay in slow
        for count in streams
    ]
    with field.folder() as folder:
        field.ours().answer(_QUESTION, cases, folder)


if __name__ == "__main__":
    main()
