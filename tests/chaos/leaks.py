"""Nothing leaks: what processes hold is what they held before, and of programs that have ended nothing is left.

`Leaks` looks at settled moments, when faults are over and lines flow, and judges once everything is received.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from broker.client.connection import Connection
from broker.wire.streams import STREAM
from broker.wire.subjects import consumer_name
from tests.chaos.program import Program
from tests.chaos.world import World
from tests.descriptors import held_by
from tests.support.processes import Process

__all__ = ["Leaks", "Life", "Seen", "Vitals", "grown", "is_lost", "left_over", "lives", "outbursts"]

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE") // 1024


@dataclass(frozen=True, slots=True)
class Vitals:
    """What a process holds at a moment; `sockets` are some of its `descriptors`, `resident` is in KiB."""

    descriptors: int
    threads: int
    resident: int
    sockets: int = 0


@dataclass(frozen=True, slots=True)
class Life:
    """A process: `began` is in ticks since the machine's start, and tells it from another one that has its number later."""

    pid: int
    began: int
    parent: int
    is_zombie: bool
    words: str
    vitals: Vitals
    folder: str = ""  # in which it works

    @property
    def key(self) -> tuple[int, int]:
        return self.pid, self.began

    @property
    def age(self) -> float:
        """Seconds since it began."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.began / _TICKS

    @property
    def program(self) -> str:
        """The name of the file that it runs."""
        return self.words.partition(" ")[0].rpartition("/")[2]

    def __str__(self) -> str:
        return f"process {self.pid} ({self.words[:160] or 'without a command line'})"


def lives() -> list[Life]:
    """Return all processes but this one."""
    pids = (int(path.name) for path in _PROC.iterdir() if path.name.isdigit())
    return [one for pid in sorted(pids) if pid != os.getpid() and (one := _life(pid))]


def _life(pid: int) -> Life | None:
    """Return what there is to see of a process, None when it has gone."""
    folder = _PROC / str(pid)
    try:
        # the name stands in parentheses and may hold anything; what comes behind are fields 3 and on of proc(5)
        fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        held = [] if fields[0] == "Z" else held_by(pid)
        sockets = sum(one.startswith("socket:") for one in held)
        where = "" if fields[0] == "Z" else str((folder / "cwd").readlink())
    except OSError:
        return None
    vitals = Vitals(len(held), int(fields[17]), int(fields[21]) * _PAGE, sockets)
    return Life(
        pid, int(fields[19]), int(fields[1]), fields[0] == "Z", words.strip(), vitals, where
    )


_SETTLED = 15.0  # seconds that a process has lived when what it holds is what it needs
_OUTLIVES = 45.0  # seconds for which a process may stay whose parent has died
_ENDS = 12.0  # seconds; ten that are promised, and a machine that is busy
_REAPED = 8.0  # seconds; a JVM has to end, and the workers behind it
_FORGOTTEN = 180.0  # seconds until a consumer has gone of whose owner nothing is heard
_GROWTH = Vitals(descriptors=40, threads=24, resident=160 * 1024, sockets=12)
_GROWTHS = {
    # it opens archives when it needs them; Spark's pools have up to 128 threads each, which go after a minute
    "java": Vitals(descriptors=250, threads=280, resident=160 * 1024, sockets=40),
    # blocks of streams stay in memory for a while, and Go's heap is tidied when it is five times what is used
    "nats-server": Vitals(descriptors=40, threads=24, resident=400 * 1024, sockets=40),
}
"""What a process may hold more than when it had settled, and what those may whose program is called so."""
_FRESH = Vitals(descriptors=900, threads=400, resident=1200 * 1024, sockets=400)
"""What no process of ours ever needs."""
_WORKERS = frozenset({"pyspark.daemon", "receiver.spark.worker_daemon"})
_NAMES = ("descriptors", "threads", "resident", "sockets")
_HALF_MADE = re.compile(r".*\.new|.*\.tmp|\..+\.[0-9a-f]{8}")
_OUTBURSTS = (
    b"Traceback (most recent call last)",
    b"was never retrieved",
    b"Exception ignored in",
    b"was never awaited",
    b"panic: ",
)


@dataclass(slots=True)
class Seen:
    """A process as it was seen: first of all, first settled, and last."""

    life: Life
    first: Vitals | None = None
    last: Vitals | None = None
    looks: int = 0


@dataclass(slots=True)
class Leaks:
    """Watches over one run, from before its first program on."""

    clock: Callable[[], float] = time.monotonic
    own: set[tuple[int, int]] = field(default_factory=lambda: {one.key for one in lives()})
    seen: dict[tuple[int, int], Seen] = field(default_factory=dict)
    lost: dict[tuple[int, int], float] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def look(self) -> None:
        """Look at all that lives, at a moment at which lines flow."""
        now = self.clock()
        living = [one for one in lives() if one.key not in self.own]
        for one in living:
            self._note(one)
        self._find_lost([one for one in living if is_lost(one, living)], now)

    def _note(self, one: Life) -> None:
        seen = self.seen.setdefault(one.key, Seen(one))
        if seen.first is None and one.age >= _SETTLED:
            seen.first = one.vitals
        seen.last, seen.looks = one.vitals, seen.looks + 1

    def _find_lost(self, lost: Sequence[Life], now: float) -> None:
        since = {one.key: self.lost.get(one.key, now) for one in lost}
        for one in lost:
            if now - since[one.key] > _OUTLIVES:
                what = "is a zombie" if one.is_zombie else "has outlived who started it"
                self.findings.append(f"{one} {what} for {now - since[one.key]:.0f} s")
                since[one.key] = inf  # said once
        self.lost = since

    def at_rest(self) -> None:
        """Judge what living processes hold, once all is received; and the consumers of the stream."""
        self.look()
        self.findings += grown(self.seen.values())

    def at_the_end(self, world: World) -> None:
        """End all programs as an operator does, the brokers last, and judge what is left of them."""
        brokers = [broker.program for broker in world.brokers]
        others = [one for one in world.supervisor.programs if one not in brokers]
        ours = [one for one in others if one.role not in {"master", "worker"}]
        self._end(ours)
        self._judge_consumers(world)
        self._end([one for one in others if one not in ours], codes={0, 143, -15})
        self._end(brokers)
        self._judge_remains()
        self.findings += left_over(
            world.folder / "tmp",
            world.output,
            world.receiver_state,
        )
        for log in sorted((world.folder / "logs").glob("*.log")):
            self.findings += outbursts(log)

    def as_json(self) -> dict[str, Any]:
        """Return how much was looked at, and the most that any process held when it was seen last."""
        last = [one.last for one in self.seen.values() if one.last]
        return {
            "processes": len(last),
            "looks": sum(one.looks for one in self.seen.values()),
            **{name: max((getattr(one, name) for one in last), default=0) for name in _NAMES},
        }

    def _end(self, programs: Sequence[Program], codes: Iterable[int] = (0,)) -> None:
        for one in programs:
            if not one.is_running():  # it did a moment ago, and nothing has struck since
                words = one.process.last_words()[-300:]
                self.findings.append(f"{one.name} has ended by itself: {words}")
        running = [one.process for one in programs if one.is_running()]
        for process in running:
            process.terminate()
        deadline = self.clock() + _ENDS
        while any(process.is_running() for process in running) and self.clock() < deadline:
            time.sleep(0.05)
        for process in running:
            self.findings += _ended(process, set(codes))

    def _judge_consumers(self, world: World) -> None:
        """Expect one of each partition; those of receivers that were killed go by themselves within minutes."""

        async def listed(connection: Connection) -> list[dict[str, Any]]:
            return list((await connection.api(f"CONSUMER.LIST.{STREAM}"))["consumers"])

        wanted = {consumer_name(number) for number in range(world.shape.partitions)}
        for consumer in world.ask(listed):
            lives = consumer["config"].get("inactive_threshold", 0) / 1e9
            if consumer["name"] not in wanted and not 0 < lives <= _FORGOTTEN:
                self.findings.append(f"consumer {consumer['name']} is left, and stays")

    def _judge_remains(self) -> None:
        deadline = self.clock() + _REAPED
        while remains := [one for one in lives() if one.key not in self.own]:
            if self.clock() > deadline:
                self.findings += [f"{one} is left of programs that have ended" for one in remains]
                return
            time.sleep(0.1)


def _ended(process: Process, codes: set[int]) -> list[str]:
    if process.is_running():
        return [f"{process.name} did not end within {_ENDS:g} s of SIGTERM"]
    code = process.wait(0)
    words = process.last_words()[-300:]
    return [] if code in codes else [f"{process.name} ended by SIGTERM with {code}: {words}"]


def is_lost(one: Life, living: Iterable[Life]) -> bool:
    """Whether nobody is there any more whom a process is there for.

    A Python worker is there for its JVM, which uses it on when the daemon that it was forked from has died.
    """
    if one.is_zombie or one.parent != 1:
        return one.is_zombie
    is_worker = not _WORKERS.isdisjoint(one.words.split())
    serves = {life.folder for life in living if life.program == "java"} if is_worker else set()
    return one.folder not in serves


def grown(seen: Iterable[Seen]) -> list[str]:
    """Return a finding for each process that holds much more than when it had settled, or than any may hold."""
    findings = []
    for one in seen:
        last = one.last or one.life.vitals
        bound = _FRESH
        if one.first is not None:
            growth = _GROWTHS.get(one.life.program, _GROWTH)
            bound = Vitals(
                **{name: getattr(one.first, name) + getattr(growth, name) for name in _NAMES}
            )
        findings += [
            f"{one.life} holds {getattr(last, name)} {name} after {one.looks} looks, at most "
            f"{getattr(bound, name)} were expected"
            for name in _NAMES
            if getattr(last, name) > min(getattr(bound, name), getattr(_FRESH, name))
        ]
    return findings


def left_over(scratch: Path, *folders: Path) -> list[str]:
    """Return a finding for each file that somebody has left half-made, or in a folder for temporary files."""
    temporary = [path for place in scratch.iterdir() for path in place.iterdir()]
    temporary_file = [
        path for folder in folders for path in folder.rglob("*") if _HALF_MADE.fullmatch(path.name)
    ]
    scratches = [path for folder in folders for path in folder.glob("logreceiver-*")]
    return [f"{path} is left behind" for path in (*temporary, *temporary_file, *scratches)]


def outbursts(log: Path) -> list[str]:
    """Return a finding for each kind of outburst that a program has in its log, with the lines around the first."""
    data = log.read_bytes()
    return [
        f"{log.stem} says {words.decode()!r} {data.count(words)} times: "
        + data[max(data.index(words) - 200, 0) :][:1500].decode(errors="replace")
        for words in _OUTBURSTS
        if words in data
    ]
