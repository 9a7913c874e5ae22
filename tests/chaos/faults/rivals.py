"""Faults of ownership: two of what may be only one, owners that are stopped."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress

from tests.chaos.fault import CannotStrike, Chance, fault, one_that_runs
from tests.chaos.program import SEEN, Program
from tests.chaos.world import World

_SECONDS = 90.0  # one of two has found out by then, whatever else happens
_SECONDS_ON_SPARK = 240.0  # where a second one has to be given executors first
_KEPT_OUT = "on this machine; stop it, or use --take-over"
TAKEN_OVER = (_KEPT_OUT, "ships for the same host and started later", "has taken it over")
_FENCED = (*TAKEN_OVER, "; this receiver stops", "a table has one writer", "; this writer stops")
_LOST = "; this one goes on with its others"
_STANDBY = "--standby"


@fault((0.5, 6.0))
def second_shipper(world: World, chance: Chance) -> Iterator[None]:
    """Start a second shipper of a host: one of the two ends with 78, and is put back."""
    first = one_that_runs(world.shippers, chance)
    second = _start_second(world, first, chance, [*first.process.arguments, "--take-over"])
    yield
    _wait_for_one(world, first, second, lambda: False)
    world.supervisor.dismiss(second)
    _put_back(first)


@fault((0.5, 12.0))
def second_receiver(world: World, chance: Chance) -> Iterator[None]:
    """Start a second receiver that is no standby: the first is fenced, and put back.

    If both start at the same moment, each may lose partitions to the other, and both go on.
    """
    first = one_that_runs(world.receivers, chance)
    begin = len(first.process.read_log())
    arguments = [word for word in first.process.arguments if word != _STANDBY]
    second = _start_second(world, first, chance, arguments)

    def share() -> bool:
        return _LOST in first.process.read_log()[begin:] and _LOST in second.process.read_log()

    yield
    if _STANDBY not in first.process.arguments:  # a standby stays one
        _wait_for_one(world, first, second, share)
    if share():
        first.process.terminate()  # started again, it takes back what the other has
    world.supervisor.dismiss(second)
    _put_back(first)


@fault((0.5, 12.0), "table")
def second_table(world: World, chance: Chance) -> Iterator[None]:
    """Start a second writer of the table: one of the two ends with 78, and is put back."""
    first = one_that_runs(world.tables, chance)
    second = _start_second(world, first, chance, first.process.arguments)
    yield
    _wait_for_one(world, first, second, lambda: False)
    world.supervisor.dismiss(second)
    _put_back(first)


@fault((1.0, 15.0))
def freeze_receiver(world: World, chance: Chance) -> Iterator[None]:
    """Stop a receiver with all that it has started; another may take over meanwhile."""
    with one_that_runs(world.receivers, chance).process.stopped() as pids:
        yield
        chance.shuffle(pids)


@fault((0.0, 0.0), "standby")
def ping_pong(world: World, chance: Chance) -> None:
    """Have the receivers change places again and again, before they have settled."""
    for _ in range(chance.randint(3, 6)):
        with suppress(CannotStrike):
            number = chance.choice((signal.SIGTERM, signal.SIGKILL))
            one_that_runs(world.receivers, chance).process.send(number)
        time.sleep(chance.uniform(0.3, 5.0))


@fault()
def all_anew(world: World, chance: Chance) -> None:
    """End all programs at once, as an upgrade or a power cut does; start them in any order."""
    programs = [*world.shippers, *world.receivers, *world.tables, *world.spark_programs]
    programs += world.broker_programs
    chance.shuffle(programs)
    number = chance.choice((signal.SIGTERM, signal.SIGKILL))
    with ExitStack() as stack:
        for program in programs:
            stack.callback(time.sleep, chance.uniform(0.0, 0.6))
            stack.enter_context(program.held())
        time.sleep(SEEN)  # one may be started just now
        for program in programs:
            program.process.send(number)
        world.supervisor.wait(
            "all have ended", lambda: not any(one.is_running() for one in programs), _SECONDS
        )


def _start_second(
    world: World, first: Program, chance: Chance, arguments: Sequence[str]
) -> Program:
    name = f"{first.name}-rival-{chance.randrange(1 << 24):06x}"
    scratch = world.folder / "tmp" / name
    scratch.mkdir(parents=True)
    process = world.processes.start(name, arguments, {"TMPDIR": str(scratch)})
    return world.supervisor.take(process)


def _wait_for_one(world: World, first: Program, second: Program, share: Callable[[], bool]) -> None:
    def is_decided() -> bool:
        # or it has died of another fault, and is not let in again beside the other one
        is_kept_out = not first.is_running() and _KEPT_OUT in first.last_output
        return bool(first.refused or second.refused) or is_kept_out or share()

    seconds = _SECONDS_ON_SPARK if world.spark_programs else _SECONDS
    world.supervisor.wait(
        f"one of {first.name} and {second.name} ends with 78", is_decided, seconds
    )


def _put_back(program: Program) -> None:
    """Start a program again that was taken over from; not one that refused for another reason."""
    if program.refused and any(arguments in program.refused for arguments in _FENCED):
        program.go_on()
