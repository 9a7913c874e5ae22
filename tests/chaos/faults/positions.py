"""Faults of what programs remember in the broker: entries deleted, garbled, or set back to what they were, consumers, buckets.

Most of it heals by itself; the rest has to be told, and is mended by doing what was told (`tests.chaos.operating`). Nothing
may be wrong in silence. `tests.chaos.faults.stores` does the same to the stores of receivers.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import (
    OFFSETS_BUCKET,
    POSITIONS_BUCKET,
    STREAM,
    offset_key,
    positions_key,
)
from broker.wire.subjects import consumer_name
from tests.chaos.commands import insist
from tests.chaos.fault import CannotStrike, Chance, add, dead, fault
from tests.chaos.operating import HarmedEntry
from tests.chaos.program import held
from tests.chaos.revisions import history
from tests.chaos.world import World

_SECONDS = 10.0
_MEANWHILE = (1.0, 4.0)  # seconds in which things go on before an older copy is put back

Harm = Callable[[bytes, Chance], bytes | None]
"""What becomes of a content, None for no content."""


def _deleted(_: bytes, __: Chance) -> None:
    return None


def _garbled(content: bytes, chance: Chance) -> bytes:
    return chance.choice((content[: chance.randrange(len(content))], chance.randbytes(100)))


def _older(content: bytes, chance: Chance) -> bytes:
    time.sleep(chance.uniform(*_MEANWHILE))
    return content


def _moved(content: bytes, chance: Chance) -> bytes:
    offset = Offset.decode(content)
    by = chance.choice([-1, 1]) * chance.choice([1, 8, 100])
    return replace(offset, next=max(1, offset.next + by)).encode()


def _read(world: World, name: str, key: str) -> bytes:
    if not (value := world.read_entry(name, key)):
        raise CannotStrike("there is no entry")
    return value


def _of_host(world: World, chance: Chance, harm: Harm) -> None:
    """Harm the snapshot of a host's positions, while its shipper runs or is dead, and start the shipper again."""
    host = chance.choice(world.hosts)
    key, is_dead = positions_key(host.name), chance.random() < 0.5
    with held([host.shipper], kill=is_dead):
        left = harm(_read(world, POSITIONS_BUCKET, key), chance)
        world.write_entry(POSITIONS_BUCKET, key, left)
        host.shipper.process.kill()


def _of_partition(world: World, chance: Chance, harm: Harm) -> None:
    """Harm the offset of a partition, while its receiver runs or is dead."""
    world.operator.on_duty.set()
    number = chance.choice(world.partitions_in_use)
    if number in world.operator.stores:
        raise CannotStrike("the store of this partition is harmed")
    with dead(world) if chance.random() < 0.5 else nullcontext():
        left = harm(_read(world, OFFSETS_BUCKET, offset_key(number)), chance)
        world.write_entry(OFFSETS_BUCKET, offset_key(number), left)
        _remember(world, number, left or b"")


def _remember(world: World, partition: int, left: bytes) -> None:
    """Have the operator know the entry that stood before the harmed one."""
    revisions = world.ask(lambda c: history(c, OFFSETS_BUCKET, offset_key(partition)))
    values = [revision.value for revision in revisions]
    try:
        moved_to = Offset.decode(left).next
    except UnreadableOffset:
        return  # this is found at once, and `logreceiver offsets set` writes one back
    if left not in values:
        return
    before = values[: len(values) - 1 - values[::-1].index(left)]
    harmed = world.operator.entries.get(partition)
    if before and (harmed is None or harmed.left != before[-1]):
        world.operator.entries[partition] = HarmedEntry(left, moved_to, before[-1])


for _what, _harm in {"deleted": _deleted, "garbled": _garbled, "older": _older}.items():
    add(f"positions-{_what}", partial(_of_host, harm=_harm))
for _what, _harm in {"deleted": _deleted, "garbled": _garbled, "moved": _moved}.items():
    add(f"offset-{_what}", partial(_of_partition, harm=_harm))


@fault()
def consumer_changed(world: World, chance: Chance) -> None:
    """Delete the consumer of a partition, or change or pause it, with other hands."""
    world.operator.on_duty.set()
    name = consumer_name(chance.choice(world.partitions_in_use))
    changes: list[dict[str, object] | None] = [
        None,
        {"pause_until": "2100-01-01T00:00:00Z"},
        {"ack_wait": 5_000_000_000},
        {"headers_only": True},
    ]
    change = chance.choice(changes)

    def call(what: str, body: dict[str, object] | None = None) -> dict[str, Any]:
        return world.ask(lambda c: c.api(f"CONSUMER.{what}.{STREAM}.{name}", body), _SECONDS)

    try:
        if change is None:
            call("DELETE")
        elif "pause_until" in change:
            call("PAUSE", change)
        else:
            config = call("INFO")["config"] | change
            call("CREATE", {"stream_name": STREAM, "config": config, "action": "update"})
    except TimeoutError:  # the broker refuses, and goes on refusing
        raise CannotStrike("there is no such consumer") from None


def _without(world: World, _: Chance, name: str) -> Iterator[None]:
    """Take away a bucket; an operator has `logbroker apply` make it again."""
    world.operator.on_duty.set()
    world.ask(lambda c: c.api(f"STREAM.DELETE.KV_{name}"))
    yield
    insist("logbroker", "apply", "--yes", *world.admin_words)


for _what, _name in {"offsets": OFFSETS_BUCKET, "positions": POSITIONS_BUCKET}.items():
    add(f"{_what}-bucket-deleted", partial(_without, name=_name), (1.0, 12.0))
