"""Faults of files: syncs that fail or take long, short writes, calls that the kernel refuses.

Python, Java and what they start are told by the shim between them and libc (`tests.chaos.shim`). nats-server talks to the
kernel without libc, so its calls are met there, by strace: a call that fails is not carried out. Whatever was refused is let
through again at the end, and nobody does anything else.
"""

import errno
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.faults.fault import Act, CannotStrike, Chance, End, Family
from tests.chaos.faults.processes import server_of
from tests.chaos.shim import Calls, Control

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["FAMILY"]

FAMILY = Family()
_ATTACHED = 10.0  # seconds

Refuse = Callable[[Control, Path, Chance], None]
Choose = Callable[["World", Chance], list[tuple[Control, Path]]]


def _fail_syncs(control: Control, under: Path, chance: Chance) -> None:
    """Fail syncs of a {}, once or for a while."""
    times = chance.choice((1, 1, 5, -1))
    control.refuse(Calls.SYNC, under, error=errno.EIO, times=times, every=chance.randint(1, 4))


def _shorten_writes(control: Control, under: Path, chance: Chance) -> None:
    """Have a {} write half of what it wants to."""
    control.refuse(Calls.WRITE, under, every=chance.randint(1, 3))


def _fail_calls(control: Control, under: Path, chance: Chance) -> None:
    """Fail calls of a {} that change files, some or all of a kind."""
    calls = chance.choice((Calls.WRITE, Calls.OPEN, Calls.NAMES, Calls.LENGTH, Calls.ALL))
    error = chance.choice((errno.EIO, errno.ENOSPC, errno.EDQUOT))
    times = chance.choice((1, 3, -1))
    control.refuse(calls, under, error=error, times=times, every=chance.randint(1, 5))


def _forbid_changes(control: Control, under: Path, _: Chance) -> None:
    """Refuse as read-only all that a {} would change in its folder."""
    control.refuse(Calls.ALL, under, error=errno.EROFS)


def _slow_syncs(control: Control, under: Path, chance: Chance) -> None:
    """Have syncs of a {} take up to half a second."""
    control.refuse(Calls.SYNC, under, delay=chance.choice((0.002, 0.02, 0.1, 0.5)))


def _receivers(world: "World", _: Chance) -> list[tuple[Control, Path]]:
    programs = [*world.receivers, *world.spark_programs]
    return [(world.control(program), world.output.parent) for program in programs]


def _logbrokers(world: "World", chance: Chance) -> list[tuple[Control, Path]]:
    broker = chance.choice(world.brokers)
    return [(world.control(broker.program), broker.store)]


def _refusing(choose: Choose, refuse: Refuse) -> Act:
    def act(world: "World", chance: Chance) -> End:
        chosen = choose(world, chance)
        same = chance.randrange(1 << 30)
        for control, under in chosen:
            refuse(control, under, random.Random(same))

        def end() -> None:
            hits = sum(control.hits for control, _ in chosen)
            for control, _ in chosen:
                control.rest()
            if not hits:
                raise CannotStrike("no such call came")

        return end

    return act


def _failing_syncs(chance: Chance) -> str:
    """Fail syncs of a nats-server, once or for a while."""
    return f"fsync,fdatasync:error=EIO:when={chance.choice(('1', '1+2', '2+5', '1+'))}"


def _failing_writes(chance: Chance) -> str:
    """Fail writes of a nats-server to its files, once or for a while."""
    error = chance.choice(("EIO", "ENOSPC", "EROFS"))
    return f"pwrite64:error={error}:when={chance.choice(('1', '1+3', '1+'))}"


def _slow_server_syncs(chance: Chance) -> str:
    """Have syncs of a nats-server take up to half a second."""
    return f"fsync,fdatasync:delay_enter={chance.choice((2_000, 20_000, 100_000, 500_000))}"


def _injecting(injected: Callable[[Chance], str]) -> Act:
    def act(world: "World", chance: Chance) -> End:
        pid = server_of(chance.choice(world.brokers).program)
        tracer = _attached(pid, injected(chance), world.folder / "logs" / f"strace-{pid}.log")

        def end() -> None:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(_ATTACHED)

        return end

    return act


def _attached(pid: int, injected: str, log: Path) -> "subprocess.Popen[bytes]":
    words = ["strace", "-f", "-qq", "-o", str(log), "-p", str(pid)]
    calls = injected.partition(":")[0]
    words += ["-e", f"trace={calls}", "-e", f"inject={injected}"]
    tracer = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + _ATTACHED
    while time.monotonic() < deadline and tracer.poll() is None:
        if _tracer_of(pid) == tracer.pid:
            return tracer
        time.sleep(0.05)
    tracer.kill()
    tracer.wait()
    raise CannotStrike(f"strace did not get hold of process {pid}")


def _tracer_of(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(status.partition("TracerPid:")[2].split()[0])


_REFUSALS: dict[str, Refuse] = {
    "fsync-fails": _fail_syncs,
    "short-writes": _shorten_writes,
    "calls-fail": _fail_calls,
    "read-only": _forbid_changes,
    "slow-sync": _slow_syncs,
}
_INJECTIONS = {
    "fsync-fails": _failing_syncs,
    "writes-fail": _failing_writes,
    "slow-sync": _slow_server_syncs,
}
_WHOM: dict[str, Choose] = {"receiver": _receivers, "logbroker": _logbrokers}

for _name, _refuse in _REFUSALS.items():
    for _whom, _choose in _WHOM.items():
        _act, _words = _refusing(_choose, _refuse), (_refuse.__doc__ or "").format(_whom)
        FAMILY.add(f"{_name}-{_whom}", _act, (0.5, 15.0), "shim", words=_words, weight=0.7)
for _name, _injected in _INJECTIONS.items():
    _act, _words = _injecting(_injected), _injected.__doc__ or ""
    FAMILY.add(f"{_name}-server", _act, (0.5, 10.0), "strace", words=_words, weight=0.7)
