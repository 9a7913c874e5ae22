"""Faults of processes: killed, stopped for a while, asked to end in the middle of things."""

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.faults.fault import Act, CannotStrike, End, FaultKind
from tests.chaos.program import Program
from tests.chaos.schedule import Kind

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["KINDS", "is_server", "send"]

_GONE_WITHIN = 60.0  # seconds; it may be stopped meanwhile
_STILL_WITHIN = 5.0  # seconds

Choose = Callable[["World", random.Random], int]


def _program(pick: Callable[["World"], Sequence[Program]]) -> Choose:
    def choose(world: "World", chance: random.Random) -> int:
        running = [program for program in pick(world) if program.is_running()]
        if not running:
            raise CannotStrike
        return chance.choice(running).process.pid

    return choose


def _within(pick: Callable[["World"], Sequence[Program]], is_one: Callable[[int], bool]) -> Choose:
    """Choose among the processes that a program has started."""

    def choose(world: "World", chance: random.Random) -> int:
        found = [
            pid
            for program in pick(world)
            for pid in program.process.tree()
            if pid != program.process.pid and is_one(pid)
        ]
        if not found:
            raise CannotStrike
        return chance.choice(found)

    return choose


def _kill(choose: Choose, whom: str) -> Act:
    def act(world: "World", chance: random.Random) -> None:
        pid = choose(world, chance)
        send(pid, signal.SIGKILL)
        _wait_for_end(pid, "SIGKILL")

    act.__doc__ = f"SIGKILL to {whom}."
    return act


def _terminate(choose: Choose, whom: str) -> Act:
    def act(world: "World", chance: random.Random) -> End:
        pid = choose(world, chance)
        send(pid, signal.SIGTERM)
        return lambda: _wait_for_end(pid, "SIGTERM")

    act.__doc__ = f"SIGTERM to {whom}, in the middle of things."
    return act


def _stop(choose: Choose, whom: str) -> Act:
    def act(world: "World", chance: random.Random) -> End:
        pid = choose(world, chance)
        send(pid, signal.SIGSTOP)
        _wait_for_stop(pid)

        def end() -> None:
            with suppress(CannotStrike):  # somebody else has killed it meanwhile
                send(pid, signal.SIGCONT)

        return end

    act.__doc__ = f"SIGSTOP to {whom}, SIGCONT later."
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
        raise CannotStrike from None


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _is_java(pid: int) -> bool:
    return _words(pid)[0].endswith(b"/java") if _words(pid) else False


_DAEMONS = frozenset({b"pyspark.daemon", b"receiver.spark.worker_daemon"})


def _is_daemon(pid: int) -> bool:
    """Whether it is what Python workers are forked from; they have its command line."""
    return _has_daemons_words(pid) and not _has_daemons_words(_parent(pid))


def _is_python_worker(pid: int) -> bool:
    return _has_daemons_words(pid) and _has_daemons_words(_parent(pid))


def _has_daemons_words(pid: int) -> bool:
    return not _DAEMONS.isdisjoint(_words(pid))


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def is_server(pid: int) -> bool:
    """Whether a process is a nats-server."""
    return b"nats-server" in _words(pid)[0] if _words(pid) else False


def _spark(world: "World") -> list[Program]:
    return [*world.receivers, *world.spark_programs]


def _brokers(world: "World") -> list[Program]:
    return [broker.program for broker in world.brokers]


_VICTIMS: dict[str, tuple[Choose, frozenset[str]]] = {
    "shipper": (_program(lambda world: world.shippers), frozenset()),
    "broker": (_program(_brokers), frozenset()),
    "server": (_within(_brokers, is_server), frozenset()),
    "driver": (_program(lambda world: world.receivers), frozenset()),
    "jvm": (_within(lambda world: world.receivers, _is_java), frozenset()),
    "python-worker": (_within(_spark, _is_python_worker), frozenset()),
    "python-daemon": (_within(_spark, _is_daemon), frozenset()),
    "master": (
        _program(lambda world: [one for one in world.spark_programs if one.role == "master"]),
        frozenset({"spark"}),
    ),
    "spark-worker": (
        _program(lambda world: [one for one in world.spark_programs if one.role == "worker"]),
        frozenset({"spark"}),
    ),
    "executor": (
        _within(lambda world: world.spark_programs, _is_java),
        frozenset({"spark"}),
    ),
}
_WORDS = {
    "shipper": "a shipper",
    "broker": "a broker's logbroker",
    "server": "a nats-server",
    "driver": "a receiver's driver",
    "jvm": "a driver's JVM",
    "python-worker": "a Python worker of Spark",
    "python-daemon": "what Python workers are forked from",
    "master": "the master of Spark's cluster",
    "spark-worker": "a worker of Spark's cluster",
    "executor": "a JVM of Spark's cluster",
}
_ASKED = ("shipper", "broker", "driver", "spark-worker", "master")

KINDS = (
    *(
        FaultKind(Kind(f"kill-{name}", weight=2.0, needs=needs), _kill(choose, _WORDS[name]))
        for name, (choose, needs) in _VICTIMS.items()
    ),
    *(
        FaultKind(Kind(f"stop-{name}", lasts=(0.2, 12.0), needs=needs), _stop(choose, _WORDS[name]))
        for name, (choose, needs) in _VICTIMS.items()
    ),
    *(
        FaultKind(
            Kind(f"end-{name}", needs=_VICTIMS[name][1]),
            _terminate(_VICTIMS[name][0], _WORDS[name]),
        )
        for name in _ASKED
    ),
)
