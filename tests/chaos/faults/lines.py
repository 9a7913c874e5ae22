"""Faults of lines between machines: cut, silent in one direction or both, lossy, slow, far, and what happens meanwhile.

A machine is that of hosts, of a broker (all of its lines) or of receivers; "routes" is a broker's line to the others.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.chaos.faults.fault import Act, CannotStrike, Chance, End, Family, one_that_runs, together
from tests.chaos.networks import EVERYTHING, Line, Loss, Machine, Slowness
from tests.chaos.program import Program

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["FAMILY"]

FAMILY = Family()
_FLAPS = 10
_LONGEST_FLAP = 0.3  # seconds
_MOST_RESETS = 8
_LONGEST_CALM = 0.6  # seconds between two of them

Trouble = Callable[[Line, Chance], End]


def swallow(line: Line, _: Chance) -> End:
    """Lose everything in both directions, and tell nobody."""
    return line.lose(EVERYTHING)


def unplug(line: Line, _: Chance) -> End:
    """Take the line down, which the machine's kernel sees."""
    return line.unplug()


def deafen(line: Line, _: Chance) -> End:
    """Lose what is sent to the machine: it is heard, and hears nothing."""
    return line.inward.lose(EVERYTHING)


def mute(line: Line, _: Chance) -> End:
    """Lose what the machine sends: it hears, and is not heard."""
    return line.outward.lose(EVERYTHING)


def half_open(line: Line, _: Chance) -> End:
    """End the machine's connections without the other ends being told, which keep theirs for as long as they like."""
    heal = line.outward.lose(EVERYTHING)
    line.reset()
    return heal


def lossy(line: Line, chance: Chance) -> End:
    """Lose some of the packets, up to a third."""
    return line.lose(Loss(chance.uniform(0.02, 0.33)))


def slow(line: Line, chance: Chance) -> End:
    """Let 20 to 200 kB a second through; more waits for seconds, or is lost."""
    rate = chance.randint(20_000, 200_000)
    return line.slow(Slowness(rate, chance.choice((8_000, 2 * rate))))


def far(line: Line, chance: Chance) -> End:
    """Delay what the machine sends by up to 600 ms, some of it out of order."""
    return line.delay(chance.uniform(0.02, 0.6))


def flap(line: Line, chance: Chance) -> End:
    """Take the line down and up again, ten times within some seconds."""
    for _ in range(_FLAPS):
        plug = line.unplug()
        time.sleep(chance.uniform(0, _LONGEST_FLAP))
        plug()
        time.sleep(chance.uniform(0, _LONGEST_FLAP))
    return together(())


def reset(line: Line, chance: Chance) -> End:
    """End all connections of the machine, once or several times in a row; the other ends are told."""
    for _ in range(chance.randint(1, _MOST_RESETS)):
        line.reset()
        time.sleep(chance.uniform(0, _LONGEST_CALM))
    return together(())


def _host_machine(world: "World", chance: Chance) -> Machine:
    return world.machines[chance.choice(sorted({host.machine for host in world.hosts}))]


def _broker_lines(world: "World", chance: Chance) -> list[Line]:
    machine = chance.choice(world.brokers).machine
    return [machine.clients, machine.routes] if len(world.brokers) > 1 else [machine.clients]


_TROUBLES: dict[str, tuple[Trouble, tuple[float, float], tuple[str, ...]]] = {
    "swallow": (swallow, (1.0, 40.0), ("shaping",)),
    "unplug": (unplug, (1.0, 30.0), ()),
    "deafen": (deafen, (1.0, 30.0), ("shaping",)),
    "mute": (mute, (1.0, 30.0), ("shaping",)),
    "half-open": (half_open, (0.5, 30.0), ("shaping",)),
    "lossy": (lossy, (2.0, 15.0), ("shaping",)),
    "slow": (slow, (2.0, 15.0), ("shaping",)),
    "far": (far, (2.0, 15.0), ("shaping", "tun")),
    "flap": (flap, (0.0, 0.0), ()),
    "reset": (reset, (0.0, 0.0), ()),
}
_PLACES: "dict[str, tuple[Callable[[World, Chance], Sequence[Line]], tuple[str, ...]]]" = {
    "host": (lambda world, chance: [_host_machine(world, chance).clients], ()),
    "broker": (_broker_lines, ()),
    "receiver": (lambda world, _: [world.receiver_machine.clients], ()),
    "routes": (lambda world, chance: [chance.choice(world.brokers).machine.routes], ("cluster",)),
}


def _at(trouble: Trouble, pick: "Callable[[World, Chance], Sequence[Line]]") -> Act:
    return lambda world, chance: together([trouble(line, chance) for line in pick(world, chance)])


for _name, (_trouble, _lasts, _needs) in _TROUBLES.items():
    for _place, (_pick, _more) in _PLACES.items():
        _words = _trouble.__doc__ or ""
        _act = _at(_trouble, _pick)
        FAMILY.add(f"{_name}-{_place}", _act, _lasts, *_needs, *_more, words=_words, weight=0.5)


@FAMILY.kind((1.0, 30.0), "shaping")
def kill_unseen_shipper(world: "World", chance: Chance) -> End:
    """Kill a shipper whose line is silent: the broker keeps a dead connection, and its successor comes beside that."""
    machine = _host_machine(world, chance)
    there = [host.shipper for host in world.hosts if host.machine == machine.name]
    return _killed_unseen(machine, [one for one in there if one], chance)


@FAMILY.kind((1.0, 30.0), "shaping")
def kill_unseen_receiver(world: "World", chance: Chance) -> End:
    """Kill a receiver whose line is silent."""
    return _killed_unseen(world.receiver_machine, world.receivers, chance)


@FAMILY.kind((1.0, 30.0), "shaping")
def restart_unseen_by_hosts(world: "World", chance: Chance) -> End:
    """Kill a broker while a host machine's line is silent: its shippers hold on to what is gone."""
    return _killed_unseen(_host_machine(world, chance), world.broker_programs, chance)


@FAMILY.kind((1.0, 30.0), "shaping")
def restart_unseen_by_receivers(world: "World", chance: Chance) -> End:
    """Kill a broker while the receivers' line is silent."""
    return _killed_unseen(world.receiver_machine, world.broker_programs, chance)


def _killed_unseen(machine: Machine, victims: Sequence[Program], chance: Chance) -> End:
    heal = machine.clients.lose(EVERYTHING)
    with suppress(CannotStrike, ProcessLookupError):  # none runs, or it has ended just now
        os.kill(one_that_runs(victims, chance).process.pid, signal.SIGKILL)
    return heal
