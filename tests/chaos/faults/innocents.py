"""Signals, commands and limits of operators, which must disturb nothing and find nothing wrong."""

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import TimeoutExpired
from threading import Lock

from nats_logship.client.connection import Connection
from nats_logship.wire.streams import STREAM
from tests.chaos.fault import MOMENT, CannotStrike, Chance, add, alone, fault, one_that_runs
from tests.chaos.faults.memory import HARMED, memory
from tests.chaos.program import Program
from tests.chaos.world import World
from tests.support.commands import CommandFailed, retried, run_command

_SECONDS = 240.0  # Spark starts within some of them
_OUT_OF_REACH = 1
_SHORT = (5.0, 15.0)  # seconds
purging = Lock()
"""Held while the stream has space for few messages."""


def _run(program: str, *arguments: str | Path) -> None:
    """Run a command; raises `CannotStrike` if it refuses with a line, or takes too long."""
    try:
        run_command(program, *arguments, seconds=_SECONDS)
    except TimeoutExpired:
        raise CannotStrike(f"{program} {arguments[0]} took too long") from None
    except CommandFailed as failed:
        is_defect = any(one in str(failed) for one in ("Traceback", '"well": false'))
        if is_defect or failed.code != _OUT_OF_REACH:
            raise
        raise CannotStrike(str(failed).strip()[-200:]) from None


@fault()
def backup(world: World, chance: Chance) -> None:
    """Take a backup while lines flow; it must be whole."""
    folder = world.folder / f"backup-{chance.randrange(1 << 24):06x}"
    try:
        _run("logbroker", "backup", folder, *world.admin_arguments)
        run_command("logbroker", "backup", folder, "--verify")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@fault()
def verify(world: World, _: Chance) -> None:
    """Compare what was received so far with the stream; there must be no difference."""
    folders = ("--output", world.output, "--state-dir", world.receiver_state)
    # it has stores open, which keeps a disk in use, and believes what they say
    with world.disks["central"].trouble(), alone(memory, HARMED):
        _run("logreceiver", "verify", "--json", *folders, *world.admin_arguments)


@fault((1.0, 8.0))
def pause(world: World, chance: Chance) -> Iterator[None]:
    """Pause a host, some or all; their lines wait, and flow again when they are resumed."""
    name = chance.choice(world.hosts).name
    globs = chance.choice([(), (name,), (f"{name[:2]}*",)])
    resume = partial(run_command, "logbroker", "resume", *world.admin_arguments)
    try:
        _run("logbroker", "pause", *globs, *world.admin_arguments)
    except CannotStrike:  # the answer alone may be lost
        retried(resume)
        raise
    yield
    retried(resume)


@fault()
def short_of_space(world: World, chance: Chance) -> None:
    """Give the stream space for few messages: retention purges, hosts wait, nothing is lost."""
    with alone(purging, "it is short of space already"):
        _hold(world, chance.randint(20, 200))
        time.sleep(chance.uniform(*_SHORT))
        _hold(world, -1)


def _hold(world: World, messages: int) -> None:
    async def update(connection: Connection) -> None:
        config = (await connection.api(f"STREAM.INFO.{STREAM}"))["config"]
        limited = {**config, "max_msgs": messages, "discard": "new"}
        await connection.api(f"STREAM.UPDATE.{STREAM}", limited)

    world.ask(update)


def _signal(
    world: World, chance: Chance, programs: Callable[[World], list[Program]], number: int
) -> None:
    program = one_that_runs(programs(world), chance)
    for _ in range(chance.randint(1, 5)):
        program.process.send(number)
        time.sleep(chance.uniform(0.0, 0.5))


for _name, _programs, _number, *_needs in (
    ("rotate-now", lambda world: world.receivers, signal.SIGUSR1),
    ("hang-up-receiver", lambda world: world.receivers, signal.SIGHUP),
    ("hang-up-table", lambda world: world.tables, signal.SIGHUP, "table"),
    ("hang-up-shipper", lambda world: world.shippers, signal.SIGHUP),
    ("hang-up-broker", lambda world: world.broker_programs, signal.SIGHUP),
):
    add(_name, partial(_signal, programs=_programs, number=_number), MOMENT, *_needs)
