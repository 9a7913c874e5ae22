"""Faults of processes: killed, stopped for a while, asked to end in the middle of things."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from tests.chaos.fault import MOMENT, CannotStrike, Chance, add, one_that_runs
from tests.chaos.program import Program
from tests.chaos.world import World
from tests.support.processes import proc, stat_of

_GONE_WITHIN = 60.0  # seconds; it may be stopped meanwhile
PYTHON_DAEMONS = ("pyspark.daemon", "receiver.spark.worker_daemon")
"""The modules that Python workers are forked from."""

Pick = Callable[[World, Chance], int]
Programs = Callable[[World], Sequence[Program]]


def send(pid: int, number: int) -> None:
    """Send a signal; raises `CannotStrike` when there is nobody any more."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        raise CannotStrike("it has ended") from None


def server_of(broker: Program) -> int:
    for pid in broker.process.tree():
        if _is_server(pid):
            return pid
    raise CannotStrike(f"{broker.name} has no nats-server just now")


def _one_of(programs: Programs) -> Pick:
    return lambda world, chance: one_that_runs(programs(world), chance).process.pid


def _below(programs: Programs, is_one: Callable[[int], bool]) -> Pick:
    def pick(world: World, chance: Chance) -> int:
        trees = {
            pid
            for one in programs(world)
            for pid in one.process.tree()
            if pid != one.process.pid and is_one(pid)
        }
        if not trees:
            raise CannotStrike("none runs just now")
        return chance.choice(sorted(trees))

    return pick


def _kill(world: World, chance: Chance, pick: Pick) -> None:
    pid = pick(world, chance)
    send(pid, signal.SIGKILL)
    _wait_for_end(pid)


def _end(world: World, chance: Chance, pick: Pick) -> Iterator[None]:
    pid = pick(world, chance)
    send(pid, signal.SIGTERM)
    yield
    _wait_for_end(pid)


def stop(world: World, chance: Chance, pick: Pick) -> Iterator[None]:
    """Stop a process, as a machine does that swaps: its connections stay open."""
    pid = pick(world, chance)
    send(pid, signal.SIGSTOP)
    yield
    with suppress(CannotStrike):  # somebody else has killed it meanwhile
        send(pid, signal.SIGCONT)


def _wait_for_end(pid: int) -> None:
    """Return when the process has gone; raises RuntimeError when it does not go."""
    deadline = time.monotonic() + _GONE_WITHIN
    while _is_there(pid):
        if time.monotonic() > deadline:
            arguments = " ".join(_command_line(pid)[:6])
            raise RuntimeError(f"{arguments} is there {_GONE_WITHIN:g} s after its signal to end")
        time.sleep(0.05)


def _is_there(pid: int) -> bool:
    """Whether the process lives; its first thread is a zombie before the others have ended."""
    fields = stat_of(pid)
    return bool(fields) and (fields[0] not in {"Z", "X"} or int(fields[17]) > 1)


def _command_line(pid: int) -> list[str]:
    return proc(pid, "cmdline").split("\0")


def _is_java(pid: int) -> bool:
    return _command_line(pid)[0].endswith("/java")


def _is_server(pid: int) -> bool:
    return "nats-server" in _command_line(pid)[0]


def _is_python_daemon(pid: int) -> bool:
    """Whether it is what Python workers are forked from, or one of them."""
    return any(name in _command_line(pid) for name in PYTHON_DAEMONS)


def _spark(world: World) -> list[Program]:
    return [*world.receivers, *world.spark_programs]


for _name, _pick, *_needs in (
    ("table", _one_of(lambda world: world.tables), "table"),
    ("table-jvm", _below(lambda world: world.tables, _is_java), "table"),
    ("table-worker", _below(lambda world: world.tables, _is_python_daemon), "table"),
    ("shipper", _one_of(lambda world: world.shippers)),
    ("broker", _one_of(lambda world: world.broker_programs)),
    ("server", _below(lambda world: world.broker_programs, _is_server)),
    ("driver", _one_of(lambda world: world.receivers)),
    ("jvm", _below(lambda world: world.receivers, _is_java)),
    ("python-worker", _below(_spark, _is_python_daemon)),
    ("master", _one_of(lambda world: world.spark_programs[:1]), "spark"),
    ("spark-worker", _one_of(lambda world: world.spark_programs[1:]), "spark"),
    ("executor", _below(lambda world: world.spark_programs, _is_java), "spark"),
):
    add(f"kill-{_name}", partial(_kill, pick=_pick), MOMENT, *_needs)
    add(f"stop-{_name}", partial(stop, pick=_pick), (0.2, 12.0), *_needs)
    if _name in ("shipper", "broker", "driver", "table"):
        add(f"end-{_name}", partial(_end, pick=_pick), MOMENT, *_needs)
