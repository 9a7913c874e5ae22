"""Faults of lines between machines: silent, half-open, lossy, reset; and a kill meanwhile.

A machine has hosts, a broker (all of its lines) or receivers; "routes" is a broker's line to
others.
"""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial

from tests.chaos.fault import MOMENT, CannotStrike, Chance, add, fault, one_that_runs
from tests.chaos.networks import Line
from tests.chaos.world import Broker, World

_MOST_RESETS = 8
_LONGEST_CALM = 0.6  # seconds between two of them

Trouble = Callable[[Line, Chance], AbstractContextManager[None]]
Places = Callable[[World, Chance], Sequence[Line]]


def swallow(line: Line, _: Chance) -> AbstractContextManager[None]:
    """Lose everything in both directions, silently."""
    return line.losing()


def _one_way(line: Line, chance: Chance) -> AbstractContextManager[None]:
    """Lose what the machine sends, or what is sent to it."""
    return chance.choice((line.inward, line.outward)).losing()


@contextmanager
def _half_open(line: Line, _: Chance) -> Iterator[None]:
    """End the machine's connections silently: the other ends keep theirs as long as they like."""
    with line.outward.losing():
        line.reset()
        yield


def _lossy(line: Line, chance: Chance) -> AbstractContextManager[None]:
    """Lose packets, which makes a line slow: TCP sends them again, ever later."""
    return line.losing(chance.uniform(0.02, 0.33))


def _reset(world: World, chance: Chance, targets: Places) -> None:
    """End all connections of the machine, once or several times; the other ends receive a reset."""
    for line in targets(world, chance):
        for _ in range(chance.randint(1, _MOST_RESETS)):
            line.reset()
            time.sleep(chance.uniform(0, _LONGEST_CALM))


def _host(world: World, chance: Chance) -> list[Line]:
    return [world.machines[chance.choice(sorted({host.machine for host in world.hosts}))].clients]


def lines_of(broker: Broker) -> list[Line]:
    return [broker.machine.clients, broker.machine.routes]


def _broker(world: World, chance: Chance) -> list[Line]:
    return lines_of(chance.choice(world.brokers))


def _receiver(world: World, _: Chance) -> list[Line]:
    return [world.receiver_machine.clients]


def _routes(world: World, chance: Chance) -> list[Line]:
    return [chance.choice(world.brokers).machine.routes]


def at(world: World, chance: Chance, trouble: Trouble, targets: Places) -> Iterator[None]:
    with ExitStack() as stack:
        for line in targets(world, chance):
            stack.enter_context(trouble(line, chance))
        yield


for _whom, _targets, *_needs in (
    ("host", _host),
    ("broker", _broker),
    ("receiver", _receiver),
    ("routes", _routes, "cluster"),
):
    for _what, _trouble, _lasts in (
        ("swallow", swallow, (1.0, 40.0)),
        ("one-way", _one_way, (1.0, 30.0)),
        ("half-open", _half_open, (0.5, 30.0)),
        ("lossy", _lossy, (2.0, 15.0)),
    ):
        _act = partial(at, trouble=_trouble, targets=_targets)
        add(f"{_what}-{_whom}", _act, _lasts, "shaping", *_needs)
    add(f"reset-{_whom}", partial(_reset, targets=_targets), MOMENT, *_needs)


@fault((1.0, 30.0), "shaping")
def kill_unseen(world: World, chance: Chance) -> Iterator[None]:
    """Kill a program at either end of a silent line: the other end keeps a dead connection."""
    (line,) = chance.choice((_host, _receiver))(world, chance)
    near = world.receivers if line is world.receiver_machine.clients else world.shippers
    with line.losing():
        with suppress(CannotStrike):  # none runs
            victim = one_that_runs(chance.choice((near, world.broker_programs)), chance)
            victim.process.send(signal.SIGKILL)
        yield
