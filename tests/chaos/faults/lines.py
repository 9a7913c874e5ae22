"""Faults of lines between machines: silent in one direction or both, half-open, lossy, slow, reset, and a kill meanwhile.

A machine is that of hosts, of a broker (all of its lines) or of receivers; "routes" is a broker's line to the others.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.chaos.fault import Act, CannotStrike, Chance, Undo, add, fault, one_that_runs, together
from tests.chaos.networks import EVERYTHING, Line, Loss, Slowness

if TYPE_CHECKING:
    from tests.chaos.world import World

_MOST_RESETS = 8
_LONGEST_CALM = 0.6  # seconds between two of them

Trouble = Callable[[Line, Chance], Undo]
Places = Callable[["World", Chance], Sequence[Line]]


def _swallow(line: Line, _: Chance) -> Undo:
    """Lose everything in both directions, and tell nobody."""
    return line.lose(EVERYTHING)


def _one_way(line: Line, chance: Chance) -> Undo:
    """Lose what the machine sends, or what is sent to it."""
    return chance.choice((line.inward, line.outward)).lose(EVERYTHING)


def _half_open(line: Line, _: Chance) -> Undo:
    """End the machine's connections without the other ends being told, which keep theirs for as long as they like."""
    heal = line.outward.lose(EVERYTHING)
    line.reset()
    return heal


def _lossy(line: Line, chance: Chance) -> Undo:
    return line.lose(Loss(chance.uniform(0.02, 0.33)))


def _slow(line: Line, chance: Chance) -> Undo:
    """Let 20 to 200 kB a second through; more waits for seconds, or is lost."""
    rate = chance.randint(20_000, 200_000)
    return line.slow(Slowness(rate, chance.choice((8_000, 2 * rate))))


def _reset(line: Line, chance: Chance) -> Undo:
    """End all connections of the machine, once or several times in a row; the other ends are told."""
    for _ in range(chance.randint(1, _MOST_RESETS)):
        line.reset()
        time.sleep(chance.uniform(0, _LONGEST_CALM))
    return together(())


def _host(world: "World", chance: Chance) -> list[Line]:
    return [world.machines[chance.choice(sorted({host.machine for host in world.hosts}))].clients]


def _broker(world: "World", chance: Chance) -> list[Line]:
    machine = chance.choice(world.brokers).machine
    return [machine.clients, machine.routes] if len(world.brokers) > 1 else [machine.clients]


def _receiver(world: "World", _: Chance) -> list[Line]:
    return [world.receiver_machine.clients]


def _routes(world: "World", chance: Chance) -> list[Line]:
    return [chance.choice(world.brokers).machine.routes]


def _at(trouble: Trouble, places: Places) -> Act:
    return lambda world, chance: together([trouble(line, chance) for line in places(world, chance)])


for _what, _trouble, _lasts in (
    ("swallow", _swallow, (1.0, 40.0)),
    ("one-way", _one_way, (1.0, 30.0)),
    ("half-open", _half_open, (0.5, 30.0)),
    ("lossy", _lossy, (2.0, 15.0)),
    ("slow", _slow, (2.0, 15.0)),
    ("reset", _reset, (0.0, 0.0)),
):
    _needs = () if _what == "reset" else ("shaping",)
    for _whom, _places in {"host": _host, "broker": _broker, "receiver": _receiver}.items():
        add(f"{_what}-{_whom}", _at(_trouble, _places), _lasts, *_needs)
    add(f"{_what}-routes", _at(_trouble, _routes), _lasts, "cluster", *_needs)


@fault((1.0, 30.0), "shaping")
def kill_unseen(world: "World", chance: Chance) -> Undo:
    """Kill somebody at either end of a silent line: the other end keeps a dead connection, and a successor comes beside it."""
    (line,) = chance.choice((_host, _receiver))(world, chance)
    near = world.receivers if line is world.receiver_machine.clients else world.shippers
    heal = line.lose(EVERYTHING)
    with suppress(CannotStrike, ProcessLookupError):  # none runs, or it has ended just now
        victim = one_that_runs(chance.choice((near, world.broker_programs)), chance)
        os.kill(victim.process.pid, signal.SIGKILL)
    return heal
