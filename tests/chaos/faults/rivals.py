"""Faults of ownership: two of what may be only one, owners that stand still or change places. Nothing is stored twice."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.faults.fault import (
    Act,
    CannotStrike,
    Chance,
    End,
    Family,
    one_that_runs,
)
from tests.chaos.program import Program

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["FAMILY"]

FAMILY = Family()
_SECONDS = 90.0  # one of two has found out by then, whatever else happens
_SECONDS_ON_SPARK = 240.0  # where a second one has to be given executors first
_KEPT_OUT = "on this machine; stop it, or use --take-over"
_FENCED = (
    "ships for the same host since then",
    _KEPT_OUT,
    "has taken it over",
    "; this receiver stops",
)
_LOST = "; this one goes on with its others"
_STANDBY = "--standby"


@FAMILY.kind((0.5, 6.0))
def second_shipper(world: "World", chance: Chance) -> End:
    """Start a second shipper of a host: one of the two ends with 78, and is put back."""
    first = chance.choice(world.hosts).shipper
    if first is None or not first.is_running():
        raise CannotStrike("the host has no shipper just now")
    second = _beside(world, first, _name(first, chance), {}, "--take-over")

    def end() -> None:
        _wait_for_one(world, first, second)
        world.supervisor.dismiss(second)
        _put_back(first)

    return end


@FAMILY.kind((0.5, 12.0))
def second_receiver(world: "World", chance: Chance) -> End:
    """Start a second receiver that does not stand by: the first is fenced, and put back.

    Where the two start at the same moment each may lose some partitions to the other, and both go on.
    """
    first = one_that_runs(world.receivers, chance)
    begin = len(first.process.said())
    second = _beside(world, first, _name(first, chance), {_STANDBY: None})

    def share() -> bool:
        return _LOST in first.process.said()[begin:] and _LOST in second.process.said()

    def end() -> None:
        if _STANDBY not in first.process.arguments:  # who stands by does so again
            _wait_for_one(world, first, second, share)
        if share():
            first.process.terminate()  # started again, it takes back what the other has
        world.supervisor.dismiss(second)
        _put_back(first)

    return end


@FAMILY.kind((0.5, 6.0))
def misplaced_receiver(world: "World", chance: Chance) -> End:
    """Start one with a state folder of its own: it must refuse the files, as it cannot know how far they are."""
    first = one_that_runs(world.receivers, chance)
    name = _name(first, chance)
    state = world.receiver_state.with_name(f"state of {name}")
    second = _beside(world, first, name, {_STANDBY: None, "--state-dir": state})

    def end() -> None:
        world.supervisor.wait(f"{name} refuses", lambda: bool(second.refused), _SECONDS)
        world.supervisor.dismiss(second)
        _put_back(first)

    return end


@FAMILY.kind((2.0, 15.0), "standby")
def third_receiver(world: "World", chance: Chance) -> End:
    """Have a third one stand by, and go."""
    first = one_that_runs(world.receivers, chance)
    third = _beside(world, first, _name(first, chance), {})
    return lambda: world.supervisor.dismiss(third)


@FAMILY.kind((1.0, 15.0))
def freeze_receiver(world: "World", chance: Chance) -> End:
    """Stop a receiver with all that it has started: a zombie, when somebody takes over meanwhile."""
    stopped = one_that_runs(world.receivers, chance).process.tree()
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)

    def end() -> None:
        chance.shuffle(stopped)
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    return end


def _end_and_start(
    world: "World", programs: list[Program], number: int, pauses: Iterable[float]
) -> None:
    """End programs at once and have them start again, each after the pause behind the one before."""
    for program in programs:
        program.hold()
    try:
        for program in programs:
            with suppress(ProcessLookupError):
                os.kill(program.process.pid, number)
        world.supervisor.wait(
            "all have ended", lambda: not any(one.is_running() for one in programs), _SECONDS
        )
    finally:
        for program, pause in zip(programs, pauses, strict=False):
            program.release()
            time.sleep(pause)


def _at_once(number: int) -> Act:
    def act(world: "World", _: Chance) -> None:
        _end_and_start(world, list(world.receivers), number, [0.0] * len(world.receivers))

    return act


@FAMILY.kind((0.0, 0.0), "standby")
def ping_pong(world: "World", chance: Chance) -> None:
    """Have the receivers change places again and again, before they have settled."""
    for _ in range(chance.randint(3, 6)):
        with suppress(CannotStrike, ProcessLookupError):
            number = chance.choice((signal.SIGTERM, signal.SIGKILL))
            os.kill(one_that_runs(world.receivers, chance).process.pid, number)
        time.sleep(chance.uniform(0.3, 5.0))


@FAMILY.kind()
def all_anew(world: "World", chance: Chance) -> None:
    """End all programs at once, as an upgrade does, and start them in any order."""
    programs = [*world.shippers, *world.receivers, *world.spark_programs, *world.broker_programs]
    chance.shuffle(programs)
    pauses = [chance.uniform(0.0, 0.6) for _ in programs]
    _end_and_start(world, programs, signal.SIGTERM, pauses)


for _name_, _number in {
    "receivers-end-at-once": signal.SIGTERM,
    "receivers-die-at-once": signal.SIGKILL,
}.items():
    _words = "End all receivers and have them start at the same moment."
    FAMILY.add(_name_, _at_once(_number), words=_words)


def _name(first: Program, chance: Chance) -> str:
    return f"{first.name}-rival-{chance.randrange(1 << 24):06x}"


def _beside(
    world: "World", first: Program, name: str, changes: Mapping[str, Path | None], *more: str
) -> Program:
    """Start the same program once more, with other values of some options; None leaves out one without a value."""
    words = [*first.process.arguments, *more]
    for option, value in changes.items():
        if value is not None:
            words[words.index(option) + 1] = str(value)
        elif option in words:
            words.remove(option)
    scratch = world.folder / "tmp" / name
    scratch.mkdir(parents=True)
    process = world.processes.start(name, words, {"TMPDIR": str(scratch)})
    return world.supervisor.take(process, first.role)


def _wait_for_one(
    world: "World", first: Program, second: Program, share: Callable[[], bool] = lambda: False
) -> None:
    world.supervisor.wait(
        f"one of {first.name} and {second.name} ends with 78",
        lambda: bool(first.refused or second.refused) or _is_kept_out(first) or share(),
        _SECONDS_ON_SPARK if world.spark_programs else _SECONDS,
    )


def _is_kept_out(program: Program) -> bool:
    """Whether it has died of another fault, and is not let in again beside the other one."""
    return (
        not program.is_running()
        and bool(program.endings)
        and _KEPT_OUT in program.endings[-1].words
    )


def _put_back(program: Program) -> None:
    """Start one again that was taken over from; who has refused for another reason is not ours to start."""
    if program.refused and any(words in program.refused.words for words in _FENCED):
        program.go_on()
