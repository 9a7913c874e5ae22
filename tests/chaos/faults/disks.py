"""Faults of disks: full and freed again, out of inodes, read-only under their users, without power.

What an operator does at the end: frees space and nothing else, as programs have to go on by themselves; or repairs and mounts
the file system while the machine's programs are down, as after a reboot.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from tests.chaos.disks import Disk
from tests.chaos.faults.fault import Act, End, FaultKind, within
from tests.chaos.program import Program
from tests.chaos.schedule import Kind

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["KINDS"]

_FEW = (0, 256 << 10)  # bytes that "nearly full" leaves
_BLOCKS = frozenset({"blocks"})
_OWNERS = {"host": "host", "broker": "broker", "central": "receiver"}


def _pick(world: "World", chance: random.Random, place: str) -> Disk:
    disks = [disk for disk in world.disks.values() if disk.name.split("-")[0] == place]
    return chance.choice(sorted(disks, key=lambda disk: disk.name))


def _short_of(place: str, take: Callable[[Disk, random.Random], None]) -> Act:
    def act(world: "World", chance: random.Random) -> End:
        """Leave a disk without room or without inodes, and free it again."""
        disk = _pick(world, chance, place)

        def begin() -> End:
            take(disk, chance)
            return disk.free

        return within(disk.trouble(), begin)

    act.__doc__ = (take.__doc__ or "").format(_OWNERS[place])
    return act


def _fill(disk: Disk, chance: random.Random) -> None:
    """Fill the disk of a {}, then free it."""
    disk.fill()


def _nearly_fill(disk: Disk, chance: random.Random) -> None:
    """Leave a few KiB on the disk of a {}, then free it."""
    disk.fill(chance.randrange(*_FEW))


def _use_up_inodes(disk: Disk, chance: random.Random) -> None:
    """Leave no inode on the disk of a {}, then free them."""
    disk.use_up_inodes()


def _read_only(place: str) -> Act:
    def act(world: "World", chance: random.Random) -> End:
        """Have the file system find an error, upon which it can only be read; repair it."""
        disk = _pick(world, chance, place)

        def begin() -> End:
            disk.fail()
            return lambda: _repair(disk, world.users(disk))

        return within(disk.trouble(), begin)

    act.__doc__ = f"Turn the disk of a {_OWNERS[place]} read-only under it, then repair it."
    return act


def _powerless(place: str) -> Act:
    def act(world: "World", chance: random.Random) -> End:
        """Lose what was not synced, with all programs of the machine."""
        disk = _pick(world, chance, place)
        users = world.users(disk)

        def begin() -> End:
            # the disk goes a moment before its users, or they do
            if chance.random() < 0.5:
                _kill(users)
            disk.cut_power()
            _kill(users)
            return lambda: _repair(disk, users)

        return within(disk.trouble(), lambda: within(_held(users), begin))

    act.__doc__ = f"Cut the power of a {_OWNERS[place]}: what its disk has not synced is lost."
    return act


def _repair(disk: Disk, users: list[Program]) -> None:
    with _held(users):
        _kill(users)
        disk.unmount()
        disk.mend()


@contextmanager
def _held(users: list[Program]) -> Iterator[None]:
    """Leave programs dead that die."""
    with ExitStack() as stack:
        for program in users:
            stack.enter_context(program.held())
        yield


def _kill(users: list[Program]) -> None:
    """Kill programs with all that they have started, also what one of them is starting just now."""
    for _ in range(3):
        for pid in (pid for program in users for pid in program.process.tree()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


_SHORT = {"full": _fill, "nearly-full": _nearly_fill, "no-inodes": _use_up_inodes}
_PLACES = ("host", "broker", "central")

KINDS = (
    *(
        FaultKind(Kind(f"{name}-{place}", lasts=(2.0, 20.0)), _short_of(place, take))
        for name, take in _SHORT.items()
        for place in _PLACES
    ),
    *(
        FaultKind(Kind(f"read-only-{place}", lasts=(1.0, 15.0), needs=_BLOCKS), _read_only(place))
        for place in ("broker", "central")
    ),
    *(
        FaultKind(Kind(f"power-{place}", lasts=(0.5, 8.0), needs=_BLOCKS), _powerless(place))
        for place in ("broker", "central")
    ),
)
