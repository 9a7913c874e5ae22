"""Faults of disks: full and freed again, read-only under their users, without power.

What an operator does at the end: frees space and nothing else, as programs have to go on by themselves; or repairs and mounts
the file system while the machine's programs are down, as after a reboot.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.chaos.disks import Disk
from tests.chaos.fault import Act, Chance, Undo, add, held, within
from tests.chaos.program import Program

if TYPE_CHECKING:
    from tests.chaos.world import World

Trouble = Callable[["World", Disk, Chance], Undo]


def _fill(_: "World", disk: Disk, chance: Chance) -> Undo:
    """Leave nothing, or a few KiB."""
    disk.fill(chance.choice((0, 0, 8 << 10, 100 << 10)))
    return disk.free


def _fail(world: "World", disk: Disk, _: Chance) -> Undo:
    """Turn it read-only under who uses it."""
    disk.fail()
    return lambda: _repair(disk, world.users(disk))


def _cut_power(world: "World", disk: Disk, chance: Chance) -> Undo:
    """Lose what was not synced; the disk goes a moment before its users, or they do."""
    users = world.users(disk)

    def begin() -> Undo:
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
    for program in users:
        program.kill_tree()


def _at(place: str, trouble: Trouble) -> Act:
    def act(world: "World", chance: Chance) -> Undo:
        disks = [disk for disk in world.disks.values() if disk.name.split("-")[0] == place]
        disk = chance.choice(sorted(disks, key=lambda disk: disk.name))
        return within(disk.trouble(), lambda: trouble(world, disk, chance))

    return act


for _place, _owner in {"host": "host", "broker": "broker", "central": "receiver"}.items():
    add(f"full-{_owner}", _at(_place, _fill), (2.0, 20.0))
    if _place != "host":  # hosts have no block device
        add(f"read-only-{_owner}", _at(_place, _fail), (1.0, 15.0), "blocks")
        add(f"power-{_owner}", _at(_place, _cut_power), (0.5, 8.0), "blocks")
