"""Faults of disks: full and freed again, out of inodes, read-only under their users, without power.

What an operator does at the end: frees space and nothing else, as programs have to go on by themselves; or repairs and mounts
the file system while the machine's programs are down, as after a reboot.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.chaos.disks import Disk
from tests.chaos.faults.fault import Act, Chance, End, Family, held, within
from tests.chaos.program import Program

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["FAMILY"]

FAMILY = Family()
_FEW = (0, 256 << 10)  # bytes that "nearly full" leaves
_OWNERS = {"host": "host", "broker": "broker", "central": "receiver"}

Trouble = Callable[["World", Disk, Chance], End]


def _fill(_: "World", disk: Disk, __: Chance) -> End:
    """Fill the disk of a {}, then free it."""
    disk.fill()
    return disk.free


def _nearly_fill(_: "World", disk: Disk, chance: Chance) -> End:
    """Leave a few KiB on the disk of a {}, then free it."""
    disk.fill(chance.randrange(*_FEW))
    return disk.free


def _use_up_inodes(_: "World", disk: Disk, __: Chance) -> End:
    """Leave no inode on the disk of a {}, then free them."""
    disk.use_up_inodes()
    return disk.free


def _fail(world: "World", disk: Disk, _: Chance) -> End:
    """Turn the disk of a {} read-only under it, then repair it."""
    disk.fail()
    return lambda: _repair(disk, world.users(disk))


def _cut_power(world: "World", disk: Disk, chance: Chance) -> End:
    """Cut the power of a {}: what its disk has not synced is lost."""
    users = world.users(disk)

    def begin() -> End:
        # the disk goes a moment before its users, or they do
        if chance.random() < 0.5:
            _kill(users)
        disk.cut_power()
        _kill(users)
        return lambda: _repair(disk, users)

    return within(held(users), begin)


def _repair(disk: Disk, users: list[Program]) -> None:
    with held(users):
        _kill(users)
        disk.unmount()
        disk.mend()


def _kill(users: list[Program]) -> None:
    """Kill programs with all that they have started, also what one of them is starting just now."""
    for _ in range(3):
        for pid in (pid for program in users for pid in program.process.tree()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def _at(place: str, trouble: Trouble) -> Act:
    def act(world: "World", chance: Chance) -> End:
        disks = [disk for disk in world.disks.values() if disk.name.split("-")[0] == place]
        disk = chance.choice(sorted(disks, key=lambda disk: disk.name))
        return within(disk.trouble(), lambda: trouble(world, disk, chance))

    return act


_TROUBLES: dict[str, tuple[Trouble, tuple[float, float], tuple[str, ...]]] = {
    "full": (_fill, (2.0, 20.0), ()),
    "nearly-full": (_nearly_fill, (2.0, 20.0), ()),
    "no-inodes": (_use_up_inodes, (2.0, 20.0), ()),
    "read-only": (_fail, (1.0, 15.0), ("blocks",)),
    "power": (_cut_power, (0.5, 8.0), ("blocks",)),
}
for _name, (_trouble, _lasts, _needs) in _TROUBLES.items():
    for _place, _owner in _OWNERS.items():
        if not _needs or _place != "host":  # hosts have no block device
            _words = (_trouble.__doc__ or "").format(_owner)
            FAMILY.add(f"{_name}-{_place}", _at(_place, _trouble), _lasts, *_needs, words=_words)
