"""Faults of journals: entries that are deleted before anybody read them, and a killed reader."""

import signal
import time
from collections.abc import Iterator
from contextlib import suppress

from tests.chaos.fault import CannotStrike, Chance, fault
from tests.chaos.faults.processes import send
from tests.chaos.program import held
from tests.chaos.world import World
from tests.support.processes import proc

_SOON = 5.0  # seconds; one runs while there are entries to read
_OFTEN = 0.02  # seconds


@fault((0.0, 6.0), "journal")
def vacuum_unshipped(world: World, chance: Chance) -> Iterator[None]:
    """Delete entries that were written while no agent ran: receivers must report exactly these."""
    host = chance.choice(world.hosts)
    with held([host.shipper], kill=True):
        assert host.journal
        host.journal.vacuum_unshipped()
        yield


@fault((0.1, 8.0), "journal")
def kill_journalctl(world: World, chance: Chance) -> Iterator[None]:
    """Stop a journalctl that an agent reads from; then kill it."""
    pid = _find_journalctl(world, chance)
    send(pid, signal.SIGSTOP)
    yield
    with suppress(CannotStrike):  # its agent has ended it meanwhile
        send(pid, signal.SIGKILL)


def _find_journalctl(world: World, chance: Chance) -> int:
    deadline = time.monotonic() + _SOON
    while time.monotonic() < deadline:
        below = (pid for one in world.shippers for pid in one.process.tree())
        if found := [pid for pid in below if proc(pid, "comm").strip() == "journalctl"]:
            return chance.choice(found)
        time.sleep(_OFTEN)
    raise CannotStrike("no journalctl runs just now")
