"""Faults of system calls: failing and slow syncs, short writes, refused calls, clock jumps.

Programs get them from the shim between them and libc (`tests.chaos.shim`). nats-server uses no
libc, so strace refuses its calls.
"""

import errno
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.chaos.fault import CannotStrike, Chance, add, one_that_runs
from tests.chaos.faults.processes import server_of
from tests.chaos.program import Program
from tests.chaos.shim import Calls, Control
from tests.chaos.world import World
from tests.support.processes import proc

_ATTACHED = 10.0  # seconds
_STEPS = (0.5, 30.0, 3600.0, 86400.0, 40 * 86400.0)  # seconds

Refuse = Callable[[Control, Path, Chance], None]


def _fail_syncs(control: Control, under: Path, chance: Chance) -> None:
    times = chance.choice((1, 1, 5, -1))
    control.refuse(Calls.SYNC, under, error=errno.EIO, times=times, every=chance.randint(1, 4))


def _shorten_writes(control: Control, under: Path, chance: Chance) -> None:
    control.refuse(Calls.WRITE, under, every=chance.randint(1, 3))


def _fail_calls(control: Control, under: Path, chance: Chance) -> None:
    calls = chance.choice((Calls.WRITE, Calls.OPEN, Calls.NAMES, Calls.LENGTH, Calls.ALL))
    error = chance.choice((errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS))
    times = chance.choice((1, 3, -1))
    control.refuse(calls, under, error=error, times=times, every=chance.randint(1, 5))


def _slow_syncs(control: Control, under: Path, chance: Chance) -> None:
    control.refuse(Calls.SYNC, under, delay=chance.choice((0.002, 0.02, 0.1, 0.5)))


def _receivers(world: World, _: Chance) -> list[tuple[Control, Path]]:
    programs = [*world.receivers, *world.spark_programs]
    return [(world.control(program), world.output.parent) for program in programs]


def _tables(world: World, _: Chance) -> list[tuple[Control, Path]]:
    programs = [*world.tables, *world.spark_programs]
    return [(world.control(program), world.table_folder.parent) for program in programs]


def _logbrokers(world: World, chance: Chance) -> list[tuple[Control, Path]]:
    broker = chance.choice(world.brokers)
    return [(world.control(broker.program), broker.store)]


def _refused(
    world: World,
    chance: Chance,
    where: Callable[[World, Chance], list[tuple[Control, Path]]],
    refuse: Refuse,
) -> Iterator[None]:
    controls = where(world, chance)
    same = chance.randrange(1 << 30)
    for control, under in controls:
        refuse(control, under, random.Random(same))
    yield
    hits = sum(control.hits for control, _ in controls)
    for control, _ in controls:
        control.rest()
    if not hits:
        raise CannotStrike("no such call came")


def _stepped(
    world: World, chance: Chance, where: Callable[[World, Chance], list[Program]]
) -> Iterator[None]:
    """Step the programs' clock; times of files stay true, so files look older or younger."""
    controls = {(one := world.control(program)): one.ahead for program in where(world, chance)}
    seconds = chance.choice(_STEPS) * chance.choice((1, -1))
    for control, ahead in controls.items():
        control.step(ahead + seconds)
    yield
    for control, ahead in controls.items():
        control.step(ahead)


def _injected(world: World, chance: Chance, injected: Callable[[Chance], str]) -> Iterator[None]:
    pid = server_of(chance.choice(world.brokers).program)
    tracer = _attached(pid, injected(chance))
    yield
    tracer.send_signal(signal.SIGINT)
    try:
        tracer.wait(_ATTACHED)
    except subprocess.TimeoutExpired:
        # it waits for a server that was killed meanwhile, which nobody else can reap as long
        tracer.kill()
        tracer.wait()


def _attached(pid: int, injected: str) -> "subprocess.Popen[bytes]":
    arguments = ["strace", "-f", "-qq", "-o", "/dev/null", "-p", str(pid)]
    calls = injected.partition(":")[0]
    arguments += ["-e", f"trace={calls}", "-e", f"inject={injected}"]
    tracer = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + _ATTACHED
    while time.monotonic() < deadline and tracer.poll() is None:
        if _tracer_of(pid) == tracer.pid:
            return tracer
        time.sleep(0.05)
    tracer.kill()
    tracer.wait()
    raise CannotStrike(f"strace did not get hold of process {pid}")


def _tracer_of(pid: int) -> int:
    tracer = proc(pid, "status").partition("TracerPid:")[2].split()
    return int(tracer[0]) if tracer else 0


def _failing_syncs(chance: Chance) -> str:
    return f"fsync,fdatasync:error=EIO:when={chance.choice(('1', '1+2', '2+5', '1+'))}"


def _failing_writes(chance: Chance) -> str:
    error = chance.choice(("EIO", "ENOSPC", "EROFS"))
    return f"pwrite64:error={error}:when={chance.choice(('1', '1+3', '1+'))}"


for _what, _refuse in {
    "fsync-fails": _fail_syncs,
    "short-writes": _shorten_writes,
    "calls-fail": _fail_calls,
    "slow-sync": _slow_syncs,
}.items():
    for _whom, _where, *_needs in (
        *(("receiver", _receivers), ("logbroker", _logbrokers), ("table", _tables, "table")),
    ):
        act = partial(_refused, where=_where, refuse=_refuse)
        add(f"{_what}-{_whom}", act, (0.5, 15.0), "shim", *_needs)
for _what, _call in {"fsync-fails": _failing_syncs, "writes-fail": _failing_writes}.items():
    add(f"{_what}-server", partial(_injected, injected=_call), (0.5, 10.0), "strace")
for _whom, _programs, *_needs in (
    ("shipper", lambda world, chance: [one_that_runs(world.shippers, chance)]),
    ("receiver", lambda world, _: [*world.receivers, *world.spark_programs]),
    ("logbroker", lambda world, chance: [chance.choice(world.broker_programs)]),
    ("table", lambda world, _: world.tables, "table"),
):
    add(f"clock-{_whom}", partial(_stepped, where=_programs), (1.0, 15.0), "shim", *_needs)
