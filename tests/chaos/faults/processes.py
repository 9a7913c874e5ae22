"""Faults of processes: killed, stopped for a while, asked to end in the middle of things."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.faults.fault import Act, CannotStrike, Chance, End, Family, one_that_runs
from tests.chaos.program import Program

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["FAMILY", "is_server", "send", "server_of"]

FAMILY = Family()
_GONE_WITHIN = 60.0  # seconds; it may be stopped meanwhile
_STILL_WITHIN = 5.0  # seconds
_DAEMONS = frozenset({b"pyspark.daemon", b"receiver.spark.worker_daemon"})


@dataclass(frozen=True, slots=True)
class Victim:
    """Whom a signal is sent to: one of some programs, or of the processes of a kind that these have started."""

    words: str
    programs: "Callable[[World], Sequence[Program]]"
    is_one: Callable[[int], bool] | None = None
    needs: tuple[str, ...] = ()
    is_asked: bool = False

    def choose(self, world: "World", chance: Chance) -> int:
        programs = self.programs(world)
        if self.is_one is None:
            return one_that_runs(programs, chance).process.pid
        trees = {pid for one in programs for pid in one.process.tree() if pid != one.process.pid}
        if not (found := [pid for pid in sorted(trees) if self.is_one(pid)]):
            raise CannotStrike("none runs just now")
        return chance.choice(found)


def _kill(victim: Victim) -> Act:
    def act(world: "World", chance: Chance) -> None:
        pid = victim.choose(world, chance)
        send(pid, signal.SIGKILL)
        _wait_for_end(pid, "SIGKILL")

    return act


def _terminate(victim: Victim) -> Act:
    def act(world: "World", chance: Chance) -> End:
        pid = victim.choose(world, chance)
        send(pid, signal.SIGTERM)
        return lambda: _wait_for_end(pid, "SIGTERM")

    return act


def _stop(victim: Victim) -> Act:
    def act(world: "World", chance: Chance) -> End:
        pid = victim.choose(world, chance)
        send(pid, signal.SIGSTOP)
        _wait_for_stop(pid)

        def end() -> None:
            with suppress(CannotStrike):  # somebody else has killed it meanwhile
                send(pid, signal.SIGCONT)

        return end

    return act


def _wait_for_end(pid: int, sent: str) -> None:
    """Return when the process has gone; raises RuntimeError when it does not go."""
    deadline = time.monotonic() + _GONE_WITHIN
    while _is_there(pid):
        if time.monotonic() > deadline:
            words = b" ".join(_words(pid)[:6]).decode(errors="replace")
            raise RuntimeError(f"{words} is there {_GONE_WITHIN:g} s after {sent}")
        time.sleep(0.05)


def _wait_for_stop(pid: int) -> None:
    """Return when the process stands still or has gone; raises `CannotStrike` when it goes on, as somebody else has it do."""
    deadline = time.monotonic() + _STILL_WITHIN
    while (state := _stat(pid)[:1]) and state[0] not in {"T", "t", "Z", "X"}:
        if time.monotonic() > deadline:
            raise CannotStrike(f"process {pid} goes on {_STILL_WITHIN:g} s after SIGSTOP")
        time.sleep(0.02)


def _is_there(pid: int) -> bool:
    """Whether there is such a process, and no zombie of one; the first thread is one before the others have ended."""
    fields = _stat(pid)
    return bool(fields) and (fields[0] not in {"Z", "X"} or int(fields[17]) > 1)


def _stat(pid: int) -> list[str]:
    """Return what proc(5) tells of a process: its state first, its parent next, the number of its threads 17 further on."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # the name stands in parentheses and may hold anything, spaces and parentheses too
    return stat.rpartition(")")[2].split()


def send(pid: int, number: int) -> None:
    """Send a signal; raises `CannotStrike` when there is nobody any more."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        raise CannotStrike("it has ended") from None


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return [b""]


def _is_java(pid: int) -> bool:
    return _words(pid)[0].endswith(b"/java")


def is_server(pid: int) -> bool:
    """Whether a process is a nats-server."""
    return b"nats-server" in _words(pid)[0]


def server_of(broker: Program) -> int:
    """Return the process id of a broker's nats-server."""
    for pid in broker.process.tree():
        if is_server(pid):
            return pid
    raise CannotStrike(f"{broker.name} has no nats-server just now")


def _forks_workers(pid: int) -> bool:
    """Whether it is what Python workers are forked from; they have its command line."""
    return _has_daemons_words(pid) and not _has_daemons_words(_parent(pid))


def _is_python_worker(pid: int) -> bool:
    return _has_daemons_words(pid) and _has_daemons_words(_parent(pid))


def _has_daemons_words(pid: int) -> bool:
    return not _DAEMONS.isdisjoint(_words(pid))


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _spark(world: "World") -> list[Program]:
    return [*world.receivers, *world.spark_programs]


def _of(role: str) -> "Callable[[World], list[Program]]":
    return lambda world: [one for one in world.spark_programs if one.role == role]


_ON_SPARK = ("spark",)
_VICTIMS = {
    "shipper": Victim("a shipper", lambda world: world.shippers, is_asked=True),
    "broker": Victim("a broker's logbroker", lambda world: world.broker_programs, is_asked=True),
    "server": Victim("a nats-server", lambda world: world.broker_programs, is_server),
    "driver": Victim("a receiver's driver", lambda world: world.receivers, is_asked=True),
    "jvm": Victim("a driver's JVM", lambda world: world.receivers, _is_java),
    "python-worker": Victim("a Python worker of Spark", _spark, _is_python_worker),
    "python-daemon": Victim("what Python workers are forked from", _spark, _forks_workers),
    "master": Victim("the master of Spark's cluster", _of("master"), None, _ON_SPARK, True),
    "spark-worker": Victim("a worker of Spark's cluster", _of("worker"), None, _ON_SPARK, True),
    "executor": Victim(
        "a JVM of Spark's cluster", lambda world: world.spark_programs, _is_java, _ON_SPARK
    ),
}
for _name, _victim in _VICTIMS.items():
    _needs, _whom = _victim.needs, _victim.words
    FAMILY.add(
        f"kill-{_name}",
        _kill(_victim),
        (0.0, 0.0),
        *_needs,
        words=f"SIGKILL to {_whom}.",
        weight=2.0,
    )
    FAMILY.add(
        f"stop-{_name}",
        _stop(_victim),
        (0.2, 12.0),
        *_needs,
        words=f"SIGSTOP to {_whom}, SIGCONT later.",
    )
    if _victim.is_asked:
        FAMILY.add(
            f"end-{_name}",
            _terminate(_victim),
            (0.0, 0.0),
            *_needs,
            words=f"SIGTERM to {_whom}, in the middle of things.",
        )
