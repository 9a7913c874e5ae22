"""What operators do in the middle of things: signals and commands that must disturb nothing, and find nothing wrong."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.commands import insist
from tests.chaos.faults.fault import Act, CannotStrike, Chance, End, Family, one_that_runs
from tests.chaos.program import Program
from tests.support.oracle import judge
from tests.support.received import read_received

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["FAMILY"]

FAMILY = Family()
_SECONDS = 240.0  # Spark starts within some of them
_OUT_OF_REACH = 1


def _run(world: "World", program: str, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run a command on the receivers' machine; raises `CannotStrike` when it says in a line that it cannot do it now."""
    command = [*world.receiver_machine.within, Path(sys.executable).with_name(program), *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise CannotStrike(f"{program} {words[0]} took too long") from None
    if "Traceback" in done.stderr or done.returncode not in (0, _OUT_OF_REACH):
        raise RuntimeError(f"{program} {words[0]} ended with {done.returncode}: {done.stderr}")
    return done


def _succeed(world: "World", program: str, *words: str | Path) -> None:
    done = _run(world, program, *words)
    if done.returncode:
        raise CannotStrike(done.stderr.strip()[-200:])


@contextmanager
def _folder(world: "World", name: str, chance: Chance) -> Iterator[Path]:
    folder = world.folder / f"{name}-{chance.randrange(1 << 24):06x}"
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@FAMILY.kind(weight=0.5)
def apply(world: "World", _: Chance) -> None:
    """Set up again what is set up."""
    _succeed(world, "logbroker", "apply", "--yes", *world.admin_words)


@FAMILY.kind(weight=0.5)
def backup(world: "World", chance: Chance) -> None:
    """Take a backup while lines flow; it must be whole."""
    with _folder(world, "backup", chance) as folder:
        _succeed(world, "logbroker", "backup", folder, *world.admin_words)
        checked = _run(world, "logbroker", "backup", folder, "--verify")
        if checked.returncode:
            raise RuntimeError(f"a backup that was taken is not whole: {checked.stderr}")


@FAMILY.kind(weight=0.25)
def verify(world: "World", _: Chance) -> None:
    """Compare what was received so far with the stream; there must be no difference."""
    words = ("verify", "--json", "--output", world.output, *world.admin_words)
    done = _run(world, "logreceiver", *words)
    if not done.stdout:
        raise CannotStrike(done.stderr.strip()[-200:])
    if not json.loads(done.stdout)["well"]:
        raise RuntimeError(f"logreceiver verify finds differences: {done.stdout}")


@FAMILY.kind(weight=0.25)
def replay(world: "World", chance: Chance) -> None:
    """Write all lines of the stream once more; nothing of them may be there twice, in disorder or in pieces."""
    with _folder(world, "replay", chance) as folder:
        words = ("replay", "--since", "earliest", "--output", folder, *world.admin_words)
        _succeed(world, "logreceiver", *words)
        for host in world.hosts:
            found = judge(host.sources(), read_received(folder, host.name))
            if found.repeated or found.reordered or found.torn or found.altered or found.foreign:
                raise RuntimeError(f"a replay of {host.name}: {found}")


@FAMILY.kind((1.0, 8.0))
def pause(world: "World", chance: Chance) -> End:
    """Pause a host, some or all; their lines wait, and flow again when they are resumed, or before by time."""
    name = chance.choice(world.hosts).name
    globs = chance.choice([(), (name,), (f"{name[:2]}*",)])
    by_time = chance.choice([(), ("--for", "3s")])
    _succeed(world, "logbroker", "pause", *globs, *by_time, *world.admin_words)

    def resume() -> None:
        insist("logbroker", "resume", *world.admin_words)

    return resume


def _signal(pick: "Callable[[World], list[Program]]", number: int, most: int) -> Act:
    def act(world: "World", chance: Chance) -> None:
        program = one_that_runs(pick(world), chance)
        for _ in range(chance.randint(1, most)):
            with suppress(ProcessLookupError):
                os.kill(program.process.pid, number)
            time.sleep(chance.uniform(0.0, 0.5))

    return act


for _name, _pick, _number, _most in (
    ("rotate-now", lambda world: world.receivers, signal.SIGUSR1, 5),
    ("hang-up-receiver", lambda world: world.receivers, signal.SIGHUP, 3),
    ("hang-up-shipper", lambda world: world.shippers, signal.SIGHUP, 5),
    ("hang-up-broker", lambda world: world.broker_programs, signal.SIGHUP, 12),
):
    _words = f"Send {_number.name} several times to one program, which has promised not to mind."
    FAMILY.add(_name, _signal(_pick, _number, _most), words=_words)
