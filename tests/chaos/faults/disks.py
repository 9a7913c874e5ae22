"""Faults of disks: full and freed again, read-only under their users, without power.

At the end an operator frees space, and programs go on by themselves; or repairs and mounts the file
system while the machine's programs are down.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from tests.chaos.disks import Disk
from tests.chaos.fault import Chance, add
from tests.chaos.program import Program, held
from tests.chaos.world import World

Trouble = Callable[[World, Disk, Chance], Iterator[None]]


def _fill(_: World, disk: Disk, chance: Chance) -> Iterator[None]:
    """Leave nothing, or a few KiB."""
    disk.fill(chance.choice((0, 0, 8 << 10, 100 << 10)))
    yield
    disk.free()


def _fail(world: World, disk: Disk, _: Chance) -> Iterator[None]:
    """Turn it read-only under who uses it; nats-server, unlike a receiver, believes any sync."""
    with _rest(world, disk):
        disk.fail(frozen=disk.name.startswith("broker"))
        yield
        _repair(disk, _users(world, disk))


def _cut_power(world: World, disk: Disk, chance: Chance) -> Iterator[None]:
    """Lose what was not synced; the disk goes a moment before its users, or they do."""
    users = _users(world, disk)
    with _rest(world, disk), held(users):
        if chance.random() < 0.5:
            _kill(users)
        disk.cut_power()
        _kill(users)
        yield
        _repair(disk, users)


def _rest(world: World, disk: Disk) -> AbstractContextManager[None]:
    """Have nobody follow received files while their disk loses what was not synced."""
    return world.tails.rest() if disk.name == "central" else nullcontext()


def _users(world: World, disk: Disk) -> list[Program]:
    machine_kind, _, name = disk.name.partition("-")
    match machine_kind:
        case "host":
            return [host.shipper for host in world.hosts if host.name == name]
        case "broker":
            return [broker.program for broker in world.brokers if broker.name == name]
        case "table":
            return [*world.tables, *world.spark_programs]
        case _:
            return [*world.receivers, *world.spark_programs]


def _repair(disk: Disk, users: list[Program]) -> None:
    with held(users):
        _kill(users)
        disk.unmount()
        disk.mend()


def _kill(users: list[Program]) -> None:
    for program in users:
        program.kill_tree()


def _at(world: World, chance: Chance, machine_kind: str, trouble: Trouble) -> Iterator[None]:
    disks = [disk for disk in world.disks.values() if disk.name.split("-")[0] == machine_kind]
    disk = chance.choice(sorted(disks, key=lambda disk: disk.name))
    with disk.trouble():
        yield from trouble(world, disk, chance)


for _machine_kind, _owner, *_needs in (
    *(("host", "host"), ("broker", "broker"), ("central", "receiver"), ("table", "table", "table")),
):
    filling = partial(_at, machine_kind=_machine_kind, trouble=_fill)
    add(f"full-{_owner}", filling, (2.0, 20.0), *_needs)
    if _machine_kind != "host":  # hosts have no block device
        failing = partial(_at, machine_kind=_machine_kind, trouble=_fail)
        add(f"read-only-{_owner}", failing, (1.0, 15.0), "blocks", *_needs)
        cut = partial(_at, machine_kind=_machine_kind, trouble=_cut_power)
        add(f"power-{_owner}", cut, (0.5, 8.0), "blocks", *_needs)
