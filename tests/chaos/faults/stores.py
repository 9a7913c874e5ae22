"""Faults of stores: that of a partition is lost, cut, garbled, emptied, or an older copy of it is put back.

The product promises one clear error, which names `logreceiver offsets adopt`, and touches no file until somebody has
decided. The operator brings the store back; or adopts the files, where they hold no more than what is committed. An older
store is always brought back: by its spans, what the files have since would be told as lost.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import OFFSETS_BUCKET, offset_key
from receiver.storage.store import Damaged, Store, StoredBatch, path_of
from tests.chaos.fault import CannotStrike, Chance, add, dead, fault
from tests.chaos.operating import HarmedStore, put
from tests.chaos.world import World

_MEANWHILE = (1.0, 8.0)  # seconds in which things go on before an older copy is put back

Harm = Callable[[Path, Chance], None]


def _deleted(path: Path, _: Chance) -> None:
    path.unlink()


def _truncated(path: Path, chance: Chance) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size))


def _garbled(path: Path, chance: Chance) -> None:
    path.write_bytes(chance.randbytes(path.stat().st_size))


def _harmed(world: World, chance: Chance, harm: Harm) -> None:
    """Harm the store of a partition between two starts."""
    number = _chosen(world, chance)
    with dead(world):
        _strike(world, number, chance, lambda path: harm(path, chance), may_be_lost=True)


@fault()
def store_older(world: World, chance: Chance) -> None:
    """Put back an older copy of the store of a partition between two starts."""
    number = _chosen(world, chance)
    with dead(world):
        older, was = _copy(world, number), _batch(world, number)
    time.sleep(chance.uniform(*_MEANWHILE))
    with dead(world):
        now, offset = _batch(world, number), _offset(world, number)
        if now.until != offset.next or offset.next in {was.first, was.until}:
            raise CannotStrike("nothing was committed since, or what is stored is not committed")
        _strike(world, number, chance, lambda path: put(path, older))


def _chosen(world: World, chance: Chance) -> int:
    world.operator.on_duty.set()
    return chance.choice(world.partitions_in_use)


def _strike(
    world: World,
    number: int,
    chance: Chance,
    harm: Callable[[Path], None],
    *,
    may_be_lost: bool = False,
) -> None:
    """Do harm to a store, and have the operator know of it; all receivers are dead."""
    operator = world.operator
    if number in operator.stores:
        raise CannotStrike("it is harmed already")
    batch, offset = _batch(world, number), _offset(world, number)
    if offset.next not in {batch.first, batch.until}:
        raise CannotStrike("store and offset do not go together already")
    operator.entries.pop(number, None)
    lives = _lives(world, number)
    if not lives or not offset.lines:
        raise CannotStrike("nothing was received yet")
    is_settled = batch.until == offset.next and _is_settled(world, number)
    copy = _copy(world, number)
    is_lost = may_be_lost and is_settled and chance.random() < 0.5
    harm(path_of(world.receiver_state, number))
    os.sync()  # or a power cut undoes it
    path = path_of(world.receiver_state, number)
    operator.stores[number] = HarmedStore(path, None if is_lost else copy, lives)
    world.harmed.append(path)


def _batch(world: World, number: int) -> StoredBatch:
    with _opened(world, number) as store:
        batch = store.batch()
    if batch is None:
        raise CannotStrike("the store was never begun")
    return batch


def _opened(world: World, number: int) -> Store:
    try:
        return Store(path_of(world.receiver_state, number))
    except (Damaged, FileNotFoundError):
        raise CannotStrike("there is no store that can be read") from None


def _copy(world: World, number: int) -> bytes:
    with _opened(world, number) as store, closing(sqlite3.connect(store.path)) as opened:
        return opened.serialize()


def _offset(world: World, number: int) -> Offset:
    try:
        return Offset.decode(world.read_entry(OFFSETS_BUCKET, offset_key(number)))
    except UnreadableOffset:
        raise CannotStrike("there is no offset that can be read") from None


def _lives(world: World, number: int) -> dict[Path, int]:
    """Return the live files that a partition has, by how long they are."""
    with _opened(world, number) as store:
        paths = [world.output / row.path for row in store.files("TRUE")]
    return {path: path.stat().st_size for path in paths if path.exists()}


def _is_settled(world: World, number: int) -> bool:
    """Whether the files are as the store says, so that they can be adopted and no line comes twice."""
    with _opened(world, number) as store:
        batch = store.batch()
        files, closed = (
            store.files("TRUE"),
            store.segments("batch > ?", batch.number if batch else 0),
        )
    lengths = {world.output / row.path: row.length for row in files if row.length}
    there = {path: size for path, size in _lives(world, number).items() if size}
    return not closed and lengths == there


for _what, _harm in {"deleted": _deleted, "truncated": _truncated, "garbled": _garbled}.items():
    add(f"store-{_what}", partial(_harmed, harm=_harm))
