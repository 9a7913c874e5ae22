"""Find leaks: growth of living processes since they settled, and leftovers of ended ones."""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats_logship.client.connection import Connection
from nats_logship.wire.streams import STREAM
from nats_logship.wire.subjects import consumer_name
from tests.chaos.faults.processes import PYTHON_DAEMONS
from tests.chaos.program import Program
from tests.chaos.world import World
from tests.descriptors import held_by
from tests.support.processes import TookTooLong, stat_of, wait_until

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE") // 1024
_SETTLED = 15.0  # seconds that a process has lived when what it holds is what it needs
_RESTED = 30.0  # seconds; pools of libraries end a thread that has been idle for ten
_OUTLIVES = 45.0  # seconds for which a process may stay whose parent has died
_ENDS = 12.0  # seconds; ten that are promised, and a machine that is busy
_REAPED = 8.0  # seconds; a JVM has to end, and the workers behind it
_FORGOTTEN = 180.0  # seconds until a consumer goes whose owner is silent
_HALF_MADE = re.compile(r".*\.new|.*\.tmp|\..+\.[0-9a-f]{8}")
_OUTBURSTS = re.compile(
    rb"Traceback \(most recent call last\)|was never retrieved|Exception ignored in|"
    rb"was never awaited|panic: |eof_received"
)

Holds = dict[str, int]
_MORE: Holds = {"descriptors": 40, "sockets": 12, "threads": 24, "KiB": 160 * 1024}
_MORE_OF: dict[str, Holds] = {
    # it opens archives when needed; Spark's pools have up to 128 threads each, for a minute
    "java": {"descriptors": 250, "sockets": 40, "threads": 280, "KiB": 160 * 1024},
    # it keeps blocks of streams for a while, and Go frees memory late, but below --memory
    "nats-server": {"descriptors": 40, "sockets": 40, "threads": 24, "KiB": 512 * 1024},
    # `receiver.table` says how much a task needs: 165 MiB at rest, at most 600 while it writes
    "a task of the table": {**_MORE, "KiB": 435 * 1024},
}
"""How much a process at rest may have grown since it settled, also programs of certain names."""
_MORE_PER_PARTITION: Holds = {"descriptors": 4, "threads": 1}  # those that a receiver moves to it


@dataclass(frozen=True, slots=True)
class _Life:
    """A process; `began`, in ticks since boot, distinguishes it from a later one of its number."""

    pid: int
    began: int
    parent: int
    is_zombie: bool
    command: str
    holds: Holds
    folder: str  # in which it works

    @property
    def key(self) -> tuple[int, int]:
        return self.pid, self.began

    @property
    def age(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.began / _TICKS

    @property
    def program(self) -> str:
        return self.command.partition(" ")[0].rpartition("/")[2]

    @property
    def is_worker(self) -> bool:
        return any(name in self.command.split() for name in PYTHON_DAEMONS)

    @property
    def kind(self) -> str:
        """What it may hold depends on: its program, or that it is a task of the table."""
        with suppress(OSError):
            if self.is_worker and b"libarrow" in Path(f"/proc/{self.pid}/maps").read_bytes():
                return "a task of the table"
        return self.program

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command[:160] or 'without a command line'})"


def _lives() -> list[_Life]:
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [one for pid in sorted(pids) if pid != os.getpid() and (one := _life(pid))]


def _life(pid: int) -> _Life | None:
    """Return what there is to see of a process, None when it has gone."""
    folder, fields = Path(f"/proc/{pid}"), stat_of(pid)
    if not fields:
        return None
    is_zombie = fields[0] == "Z"
    try:
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        held = [] if is_zombie else held_by(pid)
        where = "" if is_zombie else str((folder / "cwd").readlink())
    except OSError:
        return None
    holds = {
        "descriptors": len(held),
        "sockets": sum(one.startswith("socket:") for one in held),
        "threads": int(fields[17]),
        "KiB": int(fields[21]) * _PAGE,
    }
    return _Life(pid, int(fields[19]), int(fields[1]), is_zombie, command.strip(), holds, where)


@dataclass(slots=True)
class Leaks:
    """Watches over one run, from before its first program on.

    A process that has lived for `settled` seconds holds what it needs. What it has taken for work,
    such as threads of a pool, it gives back within `rested` seconds.
    """

    settled: float = _SETTLED
    rested: float = _RESTED
    findings: list[str] = field(default_factory=list)
    _own: set[tuple[int, int]] = field(default_factory=lambda: {one.key for one in _lives()})
    _settled: dict[tuple[int, int], Holds] = field(default_factory=dict)
    _lost: dict[tuple[int, int], float] = field(default_factory=dict)

    def inspect(self) -> None:
        """Look at all that lives, at a moment at which lines flow."""
        living, now = self._living(), time.monotonic()
        for one in living:
            if one.age >= self.settled:
                self._settled.setdefault(one.key, one.holds)
        lost = [one for one in living if _is_lost(one, living)]
        self._lost = {one.key: self._lost.get(one.key, now) for one in lost}
        self.findings += [
            f"{one} is nobody's for {now - self._lost[one.key]:.0f} s"
            for one in lost
            if now - self._lost[one.key] > _OUTLIVES
        ]

    def judge(self, world: World) -> list[str]:
        """Judge what processes hold, end all as an operator does, and judge what is left."""
        self.inspect()
        self.findings = list(dict.fromkeys(self.findings))
        self.findings += self.find_growth(world.shape.partitions)
        last = [*world.broker_programs, *world.spark_programs]
        self._end([one for one in world.supervisor.programs if one not in last])
        self._judge_consumers(world)
        self._end(world.spark_programs, codes={0, 143, -15})
        self._end(world.broker_programs)
        with suppress(TookTooLong):
            wait_until("nothing is left", lambda: not self._living(), _REAPED)
        self.findings += [f"{one} is left of programs that have ended" for one in self._living()]
        self.findings += _left_over(world.folder / "tmp", world.output, world.receiver_state)
        for log in sorted((world.folder / "logs").glob("*.log")):
            self.findings += _outbursts(log)
        return self.findings

    def find_growth(self, partitions: int) -> list[str]:
        """Return a finding for each process that has grown, and has not shrunk at rest either."""
        with suppress(TookTooLong):
            has_rested = lambda: not self._grown(partitions)  # noqa: E731
            wait_until("all holds what it held", has_rested, self.rested, every=1.0)
        return self._grown(partitions)

    def _grown(self, partitions: int) -> list[str]:
        found = [(one, self._settled.get(one.key, one.holds)) for one in self._living()]
        return [text for one, settled in found for text in _grown(one, settled, partitions)]

    def _living(self) -> list[_Life]:
        return [one for one in _lives() if one.key not in self._own]

    def _end(self, programs: Sequence[Program], codes: Iterable[int] = (0,)) -> None:
        """End programs by SIGTERM; they ran a moment ago, and nothing has struck since."""
        running = [one for one in programs if one.is_running()]
        listen = lambda: all(one.process.catches(signal.SIGTERM) for one in running)  # noqa: E731
        with suppress(TookTooLong):  # one that was started just now would end by the signal itself
            wait_until("all listen to signals", listen, _ENDS)
        for one in running:
            one.process.terminate()
        deadline = time.monotonic() + _ENDS
        for one in programs:
            try:
                code = one.process.wait(max(0.0, deadline - time.monotonic()))
            except TookTooLong as late:
                self.findings.append(str(late))
                continue
            if one not in running or code not in codes:
                how = "by SIGTERM" if one in running else "by itself"
                text = one.process.last_output()[-300:]
                self.findings.append(f"{one.name} has ended {how} with {code}: {text}")

    def _judge_consumers(self, world: World) -> None:
        """Expect one consumer of each partition; those of killed receivers expire."""

        async def listed(connection: Connection) -> list[dict[str, Any]]:
            return list((await connection.api(f"CONSUMER.LIST.{STREAM}"))["consumers"])

        wanted = {consumer_name(number) for number in range(world.shape.partitions)}
        for consumer in world.ask(listed):
            lives = consumer["config"].get("inactive_threshold", 0) / 1e9
            if consumer["name"] not in wanted and not 0 < lives <= _FORGOTTEN:
                self.findings.append(f"consumer {consumer['name']} is left, and stays")


def _grown(one: _Life, settled: Holds, partitions: int) -> Iterator[str]:
    more = _MORE_OF.get(one.kind, _MORE)
    for name, count in one.holds.items():
        may = settled[name] + more[name] + partitions * _MORE_PER_PARTITION.get(name, 0)
        if count > may:
            kinds = f" ({_thread_kinds(one.pid)})" if name == "threads" else ""
            yield f"{one} holds {count} {name}{kinds}, and {settled[name]} when it had settled"


def _thread_kinds(pid: int) -> str:
    """Return the names of a process's threads, which say whose they are, with their numbers."""
    names = Counter[str]()
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        with suppress(OSError):
            names[path.read_text(errors="replace").strip()] += 1
    return ", ".join(f"{count} {name}" for name, count in names.most_common())


def _is_lost(one: _Life, living: Iterable[_Life]) -> bool:
    """Whether nothing needs a process any more.

    A Python worker is needed by its JVM, which keeps it after the daemon that forked it has died.
    """
    if one.is_zombie or one.parent != 1:
        return one.is_zombie
    serves = {life.folder for life in living if life.program == "java"} if one.is_worker else set()
    return one.folder not in serves


def _left_over(scratch: Path, *folders: Path) -> list[str]:
    """Return a finding for each unfinished file, and each file in a temporary folder."""
    temporary = [path for place in scratch.iterdir() for path in place.iterdir()]
    for folder in folders:
        temporary += [path for path in folder.rglob("*") if _HALF_MADE.fullmatch(path.name)]
        temporary += folder.glob("logreceiver-*")
    return [f"{path} is left behind" for path in temporary]


def _outbursts(log: Path) -> list[str]:
    """Return a finding for a program with a forbidden log line, with the lines around it."""
    data = log.read_bytes()
    if not (found := _OUTBURSTS.search(data)):
        return []
    around = data[max(found.start() - 200, 0) :][:1500].decode(errors="replace")
    return [f"{log.stem} says {found[0].decode()!r}: {around}"]
