"""Faults of a table: an older copy of it is put back, as from a backup."""

import os
import shutil
import time
from collections.abc import Iterator
from functools import partial

from tests.chaos import tabled
from tests.chaos.fault import CannotStrike, Chance, alone, fault
from tests.chaos.faults.innocents import purging
from tests.chaos.program import held
from tests.chaos.world import World
from tests.support.commands import retried

_MEANWHILE = (2.0, 15.0)  # seconds in which lines are written that the copy does not have
_SECONDS = 180.0  # until they are written again: Spark starts, and other faults strike


@fault((0.0, 2.0), "table")
def table_restored(world: World, chance: Chance) -> Iterator[None]:
    """Put back an older copy of the table; it gets what the copy does not have once more."""
    folder, older = world.table_folder, world.folder / "older"
    disk = world.disks["table"]
    # until the writer has said how far the copy is, retention may remove what it does not have
    with alone(purging, "messages are removed just now"):
        with disk.trouble():
            _copy(world)
            time.sleep(chance.uniform(*_MEANWHILE))
            with held(world.tables, kill=True):
                retried(partial(shutil.rmtree, folder, ignore_errors=True))
                retried(partial(shutil.copytree, older, folder, dirs_exist_ok=True))
                os.sync()
            shutil.rmtree(older)
        yield
        has_all = partial(next, tabled.reached(world))
        world.supervisor.wait("the restored table has everything", has_all, _SECONDS)


def _copy(world: World) -> None:
    """Copy the table while nobody writes it."""
    if not (world.table_folder / "gaps").exists():
        raise CannotStrike("there is no table yet")
    with held(world.tables, kill=True):
        retried(partial(shutil.copytree, world.table_folder, world.folder / "older"))
