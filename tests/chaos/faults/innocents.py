"""What operators do in the middle of things: signals and commands that must disturb nothing, and find nothing wrong."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.oracle import judge
from bench.received import read_received
from tests.chaos.commands import insist
from tests.chaos.faults.fault import Act, CannotStrike, End, FaultKind
from tests.chaos.program import Program
from tests.chaos.schedule import Kind

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["KINDS"]

_SECONDS = 240.0  # Spark starts within some of them
_OUT_OF_REACH = 1


@dataclass(frozen=True, slots=True)
class _Done:
    """How a command ended, and what it said on both streams."""

    code: int
    out: str
    errors: str


def _run(world: "World", program: str, *words: str | Path) -> _Done:
    """Run a command on the receivers' machine; raises `CannotStrike` when it says in a line that it cannot do it now."""
    command = [str(Path(sys.executable).with_name(program)), *words]
    try:
        done = subprocess.run(
            [*world.receiver_machine.within, *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise CannotStrike(f"{program} {words[0]} took too long") from None
    if "Traceback" in done.stderr or done.returncode not in (0, _OUT_OF_REACH):
        raise RuntimeError(f"{program} {words[0]} ended with {done.returncode}: {done.stderr}")
    return _Done(done.returncode, done.stdout, done.stderr)


def _well(world: "World", program: str, *words: str | Path) -> str:
    done = _run(world, program, *words)
    if done.code:
        raise CannotStrike(done.errors.strip()[-200:])
    return done.out


def _apply(world: "World", _: random.Random) -> None:
    """Set up again what is set up."""
    _well(world, "logbroker", "apply", "--yes", *world.admin_words)


def _back_up(world: "World", chance: random.Random) -> None:
    """Take a backup while lines flow; it must be whole."""
    folder = world.folder / f"backup-{chance.randrange(1 << 24):06x}"
    try:
        _well(world, "logbroker", "backup", folder, *world.admin_words)
        checked = _run(world, "logbroker", "backup", folder, "--verify")
        if checked.code:
            raise RuntimeError(f"a backup that was taken is not whole: {checked.errors}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _verify(world: "World", _: random.Random) -> None:
    """Compare what was received so far with the stream; there must be no difference."""
    words = ("verify", "--json", "--output", world.output, *world.admin_words)
    done = _run(world, "logreceiver", *words)
    if not done.out:
        raise CannotStrike(done.errors.strip()[-200:])
    if not json.loads(done.out)["well"]:
        raise RuntimeError(f"logreceiver verify finds differences: {done.out}")


def _replay(world: "World", chance: random.Random) -> None:
    """Write all lines of the stream once more; nothing of them may be there twice, in disorder or in pieces."""
    folder = world.folder / f"replay-{chance.randrange(1 << 24):06x}"
    try:
        words = ("replay", "--since", "earliest", "--output", folder, *world.admin_words)
        _well(world, "logreceiver", *words)
        for host in world.hosts:
            found = judge(host.sources(), read_received(folder, host.name))
            if found.repeated or found.reordered or found.torn or found.altered or found.foreign:
                raise RuntimeError(f"a replay of {host.name}: {found}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _pause(world: "World", chance: random.Random) -> End:
    """Pause a host, some or all; their lines wait, and flow again when they are resumed, or before by time."""
    name = chance.choice(world.hosts).name
    globs = chance.choice([(), (name,), (f"{name[:2]}*",)])
    by_time = chance.choice([(), ("--for", "3s")])
    _well(world, "logbroker", "pause", *globs, *by_time, *world.admin_words)

    def resume() -> None:
        insist("logbroker", "resume", *world.admin_words)

    return resume


def _signal(pick: Callable[["World"], Sequence[Program]], number: int, most: int) -> Act:
    def act(world: "World", chance: random.Random) -> None:
        """Send a signal several times to one program, which has promised not to mind."""
        programs = [program for program in pick(world) if program.is_running()]
        if not programs:
            raise CannotStrike("none runs just now")
        program = chance.choice(programs)
        for _ in range(chance.randint(1, most)):
            with suppress(ProcessLookupError):
                os.kill(program.process.pid, number)
            time.sleep(chance.uniform(0.0, 0.5))

    return act


def _receivers(world: "World") -> list[Program]:
    return world.receivers


def _shippers(world: "World") -> list[Program]:
    return world.shippers


def _brokers(world: "World") -> list[Program]:
    return [broker.program for broker in world.brokers]


KINDS = (
    FaultKind(Kind("apply", weight=0.5), _apply),
    FaultKind(Kind("backup", weight=0.5), _back_up),
    FaultKind(Kind("verify", weight=0.25), _verify),
    FaultKind(Kind("replay", weight=0.25), _replay),
    FaultKind(Kind("pause", lasts=(1.0, 8.0)), _pause),
    FaultKind(Kind("rotate-now"), _signal(_receivers, signal.SIGUSR1, 5)),
    FaultKind(Kind("hang-up-receiver"), _signal(_receivers, signal.SIGHUP, 3)),
    FaultKind(Kind("hang-up-shipper"), _signal(_shippers, signal.SIGHUP, 5)),
    FaultKind(Kind("hang-up-broker"), _signal(_brokers, signal.SIGHUP, 12)),
)
