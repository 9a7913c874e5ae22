"""What operators do in the middle of things: signals and commands that must disturb nothing, and find nothing wrong."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.chaos.commands import insist
from tests.chaos.fault import CannotStrike, Chance, add, fault, one_that_runs
from tests.chaos.program import Program
from tests.chaos.world import World

_SECONDS = 240.0  # Spark starts within some of them
_OUT_OF_REACH = 1


def _run(world: World, program: str, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run a command on the receivers' machine; raises `CannotStrike` where it takes too long."""
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


def _succeed(world: World, program: str, *words: str | Path) -> None:
    """Run a command; raises `CannotStrike` when it says in a line that it cannot do it now."""
    done = _run(world, program, *words)
    if done.returncode:
        raise CannotStrike(done.stderr.strip()[-200:])


@fault()
def backup(world: World, chance: Chance) -> None:
    """Take a backup while lines flow; it must be whole."""
    folder = world.folder / f"backup-{chance.randrange(1 << 24):06x}"
    try:
        _succeed(world, "logbroker", "backup", folder, *world.admin_words)
        checked = _run(world, "logbroker", "backup", folder, "--verify")
        if checked.returncode:
            raise RuntimeError(f"a backup that was taken is not whole: {checked.stderr}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@fault()
def verify(world: World, _: Chance) -> None:
    """Compare what was received so far with the stream; there must be no difference."""
    words = ("verify", "--json", "--output", world.output, *world.admin_words)
    done = _run(world, "logreceiver", *words)
    if not done.stdout:
        raise CannotStrike(done.stderr.strip()[-200:])
    if not json.loads(done.stdout)["well"]:
        raise RuntimeError(f"logreceiver verify finds differences: {done.stdout}")


@fault((1.0, 8.0))
def pause(world: World, chance: Chance) -> Iterator[None]:
    """Pause a host, some or all; their lines wait, and flow again when they are resumed."""
    name = chance.choice(world.hosts).name
    globs = chance.choice([(), (name,), (f"{name[:2]}*",)])
    _succeed(world, "logbroker", "pause", *globs, *world.admin_words)
    yield
    insist("logbroker", "resume", *world.admin_words)


def _signal(
    world: World, chance: Chance, programs: Callable[[World], list[Program]], number: int
) -> None:
    program = one_that_runs(programs(world), chance)
    for _ in range(chance.randint(1, 5)):
        program.process.send(number)
        time.sleep(chance.uniform(0.0, 0.5))


for _name, _programs, _number in (
    ("rotate-now", lambda world: world.receivers, signal.SIGUSR1),
    ("hang-up-receiver", lambda world: world.receivers, signal.SIGHUP),
    ("hang-up-shipper", lambda world: world.shippers, signal.SIGHUP),
    ("hang-up-broker", lambda world: world.broker_programs, signal.SIGHUP),
):
    add(_name, partial(_signal, programs=_programs, number=_number))
