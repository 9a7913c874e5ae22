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

from tests.chaos.faults.fault import Act, CannotStrike, End, FaultKind
from tests.chaos.schedule import Kind
from tests.chaos.shim import Calls, Control

if TYPE_CHECKING:
    from tests.chaos.program import Program
    from tests.chaos.world import World

__all__ = ["KINDS"]

_SHIM = frozenset({"shim"})
_STRACE = frozenset({"strace"})
_ATTACHED = 10.0  # seconds

Refuse = Callable[[Control, Path, random.Random], None]


def _fail_syncs(control: Control, under: Path, chance: random.Random) -> None:
    """Fail syncs of a {}, once or for a while."""
    times = chance.choice((1, 1, 5, -1))
    control.refuse(Calls.SYNC, under, error=errno.EIO, times=times, every=chance.randint(1, 4))


def _shorten_writes(control: Control, under: Path, chance: random.Random) -> None:
    """Have a {} write half of what it wants to."""
    control.refuse(Calls.WRITE, under, every=chance.randint(1, 3))


def _fail_calls(control: Control, under: Path, chance: random.Random) -> None:
    """Fail calls of a {} that change files, some or all of a kind."""
    calls = chance.choice((Calls.WRITE, Calls.OPEN, Calls.NAMES, Calls.LENGTH, Calls.ALL))
    error = chance.choice((errno.EIO, errno.ENOSPC, errno.EDQUOT))
    times = chance.choice((1, 3, -1))
    control.refuse(calls, under, error=error, times=times, every=chance.randint(1, 5))


def _forbid_changes(control: Control, under: Path, chance: random.Random) -> None:
    """Refuse as read-only all that a {} would change in its folder."""
    control.refuse(Calls.ALL, under, error=errno.EROFS)


def _slow_syncs(control: Control, under: Path, chance: random.Random) -> None:
    """Have syncs of a {} take up to half a second."""
    control.refuse(Calls.SYNC, under, delay=chance.choice((0.002, 0.02, 0.1, 0.5)))


def _receivers(world: "World", chance: random.Random) -> list[tuple[Control, Path]]:
    programs = [*world.receivers, *world.spark_programs]
    return [(world.control(program), world.output.parent) for program in programs]


def _logbrokers(world: "World", chance: random.Random) -> list[tuple[Control, Path]]:
    broker = chance.choice(world.brokers)
    return [(world.control(broker.program), broker.store)]


def _refusing(
    whom: str,
    choose: Callable[["World", random.Random], list[tuple[Control, Path]]],
    refuse: Refuse,
) -> Act:
    def act(world: "World", chance: random.Random) -> End:
        """Have calls for files of a program fail, fall short or take long."""
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

    act.__doc__ = (refuse.__doc__ or "").format(whom)
    return act


def _injecting(injected: Callable[[random.Random], str]) -> Act:
    def act(world: "World", chance: random.Random) -> End:
        """Have calls of a nats-server fail or take long."""
        pid = _server_of(chance.choice(world.brokers).program)
        tracer = _attached(pid, injected(chance), world.folder / "logs" / f"strace-{pid}.log")

        def end() -> None:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(_ATTACHED)

        return end

    act.__doc__ = injected.__doc__
    return act


def _server_of(broker: "Program") -> int:
    """Return the process id of a broker's nats-server."""
    for pid in broker.process.tree():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"nats-server" in words.split(b"\0")[0]:
            return pid
    raise CannotStrike(f"{broker.name} has no nats-server just now")


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


def _failing_syncs(chance: random.Random) -> str:
    """Fail syncs of a nats-server, once or for a while."""
    return f"fsync,fdatasync:error=EIO:when={chance.choice(('1', '1+2', '2+5', '1+'))}"


def _failing_writes(chance: random.Random) -> str:
    """Fail writes of a nats-server to its files, once or for a while."""
    error = chance.choice(("EIO", "ENOSPC", "EROFS"))
    return f"pwrite64:error={error}:when={chance.choice(('1', '1+3', '1+'))}"


def _slow_server_syncs(chance: random.Random) -> str:
    """Have syncs of a nats-server take up to half a second."""
    return f"fsync,fdatasync:delay_enter={chance.choice((2_000, 20_000, 100_000, 500_000))}"


_REFUSALS: dict[str, Refuse] = {
    "fsync-fails": _fail_syncs,
    "short-writes": _shorten_writes,
    "calls-fail": _fail_calls,
    "read-only": _forbid_changes,
    "slow-sync": _slow_syncs,
}
_CHOICES = {"receiver": _receivers, "logbroker": _logbrokers}

KINDS = (
    *(
        FaultKind(
            Kind(f"{name}-{whom}", lasts=(0.5, 15.0), weight=0.7, needs=_SHIM),
            _refusing(whom, choose, refuse),
        )
        for name, refuse in _REFUSALS.items()
        for whom, choose in _CHOICES.items()
    ),
    *(
        FaultKind(
            Kind(f"{name}-server", lasts=(0.5, 10.0), weight=0.7, needs=_STRACE),
            _injecting(injected),
        )
        for name, injected in (
            ("fsync-fails", _failing_syncs),
            ("writes-fail", _failing_writes),
            ("slow-sync", _slow_server_syncs),
        )
    ),
)
