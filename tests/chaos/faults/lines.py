"""Faults of lines between machines: cut, silent in one direction or both, lossy, slow, far, and what happens meanwhile.

A machine is that of hosts, of a broker (all of its lines) or of receivers; "routes" is a broker's line to the others.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from tests.chaos.faults.fault import Act, End, FaultKind
from tests.chaos.losing import EVERYTHING, Loss
from tests.chaos.networks import Line, Machine, Slowness
from tests.chaos.program import Program
from tests.chaos.schedule import Kind

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["KINDS"]

Trouble = Callable[[Line, random.Random], End]
Pick = Callable[["World", random.Random], Sequence[Line]]

_FLAPS = 10
_LONGEST_FLAP = 0.3  # seconds
_MOST_RESETS = 8
_LONGEST_CALM = 0.6  # seconds between two of them


def swallow(line: Line, chance: random.Random) -> End:
    """Lose everything in both directions, and tell nobody."""
    return line.lose(EVERYTHING)


def unplug(line: Line, chance: random.Random) -> End:
    """Take the line down, which the machine's kernel sees."""
    return line.unplug()


def deafen(line: Line, chance: random.Random) -> End:
    """Lose what is sent to the machine: it is heard, and hears nothing."""
    return line.inward.lose(EVERYTHING)


def mute(line: Line, chance: random.Random) -> End:
    """Lose what the machine sends: it hears, and is not heard."""
    return line.outward.lose(EVERYTHING)


def half_open(line: Line, chance: random.Random) -> End:
    """End the machine's connections without the other ends being told, which keep theirs for as long as they like."""
    heal = line.outward.lose(EVERYTHING)
    line.reset()
    return heal


def lossy(line: Line, chance: random.Random) -> End:
    """Lose some of the packets, up to a third."""
    return line.lose(Loss(chance.uniform(0.02, 0.33)))


def slow(line: Line, chance: random.Random) -> End:
    """Let 20 to 200 kB a second through; more waits for seconds, or is lost."""
    rate = chance.randint(20_000, 200_000)
    return line.slow(Slowness(rate, chance.choice((8_000, 2 * rate))))


def far(line: Line, chance: random.Random) -> End:
    """Delay what the machine sends by up to 600 ms, some of it out of order."""
    return line.delay(chance.uniform(0.02, 0.6))


def flap(line: Line, chance: random.Random) -> End:
    """Take the line down and up again, ten times within some seconds."""
    for _ in range(_FLAPS):
        plug = line.unplug()
        time.sleep(chance.uniform(0, _LONGEST_FLAP))
        plug()
        time.sleep(chance.uniform(0, _LONGEST_FLAP))
    return _nothing


def reset(line: Line, chance: random.Random) -> End:
    """End all connections of the machine, once or several times in a row; the other ends are told."""
    for _ in range(chance.randint(1, _MOST_RESETS)):
        line.reset()
        time.sleep(chance.uniform(0, _LONGEST_CALM))
    return _nothing


def _nothing() -> None:
    pass


def _host(world: "World", chance: random.Random) -> Sequence[Line]:
    return [_host_machine(world, chance).clients]


def _host_machine(world: "World", chance: random.Random) -> Machine:
    return world.machines[chance.choice(sorted({host.machine for host in world.hosts}))]


def _broker(world: "World", chance: random.Random) -> Sequence[Line]:
    machine = chance.choice(world.brokers).machine
    return [machine.clients, machine.routes] if len(world.brokers) > 1 else [machine.clients]


def _receiver(world: "World", chance: random.Random) -> Sequence[Line]:
    return [world.receiver_machine.clients]


def _route(world: "World", chance: random.Random) -> Sequence[Line]:
    return [chance.choice(world.brokers).machine.routes]


def _act(trouble: Trouble, pick: Pick) -> Act:
    def act(world: "World", chance: random.Random) -> End:
        return _all([partial(trouble, line, chance) for line in pick(world, chance)])

    act.__doc__ = trouble.__doc__
    return act


def _all(troubles: Sequence[Callable[[], End]]) -> End:
    ends = [begin() for begin in troubles]

    def end() -> None:
        for each in ends:
            each()

    return end


def kill_unseen_shipper(world: "World", chance: random.Random) -> End:
    """Kill a shipper whose line is silent: the broker keeps a dead connection, and its successor comes beside that."""
    machine = _host_machine(world, chance)
    victims = [host.shipper for host in world.hosts if host.machine == machine.name]
    return _kill_unseen(machine, [one for one in victims if one], chance)


def kill_unseen_receiver(world: "World", chance: random.Random) -> End:
    """Kill a receiver whose line is silent."""
    return _kill_unseen(world.receiver_machine, world.receivers, chance)


def _kill_unseen(machine: Machine, victims: Sequence[Program], chance: random.Random) -> End:
    heal = machine.clients.lose(EVERYTHING)
    _kill(victims, chance)
    return heal


def restart_unseen_by_hosts(world: "World", chance: random.Random) -> End:
    """Kill a broker while a host machine's line is silent: its shippers hold on to what is gone."""
    heal = _host_machine(world, chance).clients.lose(EVERYTHING)
    _kill([broker.program for broker in world.brokers], chance)
    return heal


def restart_unseen_by_receivers(world: "World", chance: random.Random) -> End:
    """Kill a broker while the receivers' line is silent."""
    heal = world.receiver_machine.clients.lose(EVERYTHING)
    _kill([broker.program for broker in world.brokers], chance)
    return heal


def _kill(programs: Sequence[Program], chance: random.Random) -> None:
    running = [program for program in programs if program.is_running()]
    with suppress(IndexError, ProcessLookupError):  # none runs, or it has ended just now
        os.kill(chance.choice(running).process.pid, signal.SIGKILL)


_SHAPING = frozenset({"shaping"})
_TROUBLES: dict[str, tuple[Trouble, tuple[float, float], frozenset[str]]] = {
    "swallow": (swallow, (1.0, 40.0), _SHAPING),
    "unplug": (unplug, (1.0, 30.0), frozenset()),
    "deafen": (deafen, (1.0, 30.0), _SHAPING),
    "mute": (mute, (1.0, 30.0), _SHAPING),
    "half-open": (half_open, (0.5, 30.0), _SHAPING),
    "lossy": (lossy, (2.0, 15.0), _SHAPING),
    "slow": (slow, (2.0, 15.0), _SHAPING),
    "far": (far, (2.0, 15.0), _SHAPING | {"tun"}),
    "flap": (flap, (0.0, 0.0), frozenset()),
    "reset": (reset, (0.0, 0.0), frozenset()),
}
_PLACES: dict[str, tuple[Pick, frozenset[str]]] = {
    "host": (_host, frozenset()),
    "broker": (_broker, frozenset()),
    "receiver": (_receiver, frozenset()),
    "routes": (_route, frozenset({"cluster"})),
}
_MEANWHILE = (
    kill_unseen_shipper,
    kill_unseen_receiver,
    restart_unseen_by_hosts,
    restart_unseen_by_receivers,
)

KINDS = (
    *(
        FaultKind(
            Kind(f"{name}-{place}", lasts, weight=0.5, needs=needs | place_needs),
            _act(trouble, pick),
        )
        for name, (trouble, lasts, needs) in _TROUBLES.items()
        for place, (pick, place_needs) in _PLACES.items()
    ),
    *(
        FaultKind(Kind(act.__name__.replace("_", "-"), (1.0, 30.0), needs=_SHAPING), act)
        for act in _MEANWHILE
    ),
)
