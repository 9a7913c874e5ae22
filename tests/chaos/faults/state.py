"""Faults of what programs remember in the broker: entries deleted, cut, changed by a bit, or set back to what they were.

Most of it heals by itself; the rest has to be told, and is mended by doing what was told (`tests.chaos.operating`). Nothing
may be wrong in silence. `tests.chaos.faults.stores` does the same to the stores of receivers.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from broker.client import bucket
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import (
    CONFIG_BUCKET,
    OFFSETS_BUCKET,
    PARTITIONS_KEY,
    POSITIONS_BUCKET,
    STREAM,
    offset_key,
    positions_key,
)
from broker.wire.subjects import consumer_name, partition_filter
from tests.chaos.commands import insist
from tests.chaos.faults.fault import Act, CannotStrike, Chance, End, Family, dead
from tests.chaos.operating import HarmedEntry

if TYPE_CHECKING:
    from tests.chaos.world import Host, World

__all__ = ["FAMILY"]

FAMILY = Family()
_SECONDS = 10.0
_OF_MARKS = "Harm the mark of a folder of the receivers, under their hands or while they are dead."
_OF_POSITIONS = "Harm the snapshot of a host's positions, while its shipper runs or is dead, and start the shipper again."
_OF_ENTRIES = "Change the entry of a partition in the bucket of offsets."
_OF_BUCKETS = "Take away a bucket, or how many partitions there are; an operator has `logbroker apply` make it again."
_OF_CONSUMERS = "Do something to the consumer of a partition, with other hands."
_MEANWHILE = (1.0, 4.0)  # seconds in which things go on before an older copy is put back

Harm = Callable[[bytes, Chance], bytes | None]
"""What becomes of a content, None for no content."""
Snapshot = Callable[["World", "Host", Chance], None]
"""What is done to the snapshot of a host's positions."""
Change = Callable[["World", int, Chance], bytes | None]
"""What becomes of the entry of a partition, None for no entry."""


def _gone(_: bytes, __: Chance) -> None:
    return None


def _cut(content: bytes, chance: Chance) -> bytes:
    return content[: chance.randrange(len(content))]


def _flipped(content: bytes, chance: Chance) -> bytes:
    changed = bytearray(content)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _garbled(content: bytes, chance: Chance) -> bytes:
    return chance.randbytes(len(content))


def _damage(path: Path, harm: Harm, chance: Chance) -> None:
    """Do harm to a file where it stands: its inode and its length stay, unless it is gone or cut."""
    try:
        content = path.read_bytes()
        if not content:
            raise CannotStrike(f"{path.name} is empty")
        left = harm(content, chance)
        if left is None:
            path.unlink()
        elif len(left) < len(content):
            os.truncate(path, len(left))
        else:
            place = next(i for i, (a, b) in enumerate(zip(content, left, strict=True)) if a != b)
            with path.open("r+b") as file:
                os.pwrite(file.fileno(), left[place : place + 1], place)
    except FileNotFoundError:
        raise CannotStrike(f"{path.name} is not there") from None


def _mark(harm: Harm, *, is_dead: bool) -> Act:
    def act(world: "World", chance: Chance) -> None:
        world.operator.on_duty.set()
        path = chance.choice((world.output, world.receiver_state)) / ".place"
        with dead(world) if is_dead else nullcontext():
            _damage(path, harm, chance)

    return act


def _shipper(harm: Snapshot) -> Act:
    def act(world: "World", chance: Chance) -> None:
        host = chance.choice([host for host in world.hosts if host.shipper])
        assert host.shipper
        with host.shipper.held():
            if chance.random() < 0.5:
                harm(world, host, chance)
                host.shipper.process.kill()
            else:
                host.shipper.process.kill()
                harm(world, host, chance)

    return act


def _positions(world: "World", host: "Host") -> bytes:
    entry = world.ask(lambda c: bucket.read(c, POSITIONS_BUCKET, positions_key(host.name)))
    if entry is None:
        raise CannotStrike("there are no positions yet")
    return entry.value


def _harmed_positions(harm: Harm) -> Snapshot:
    def change(world: "World", host: "Host", chance: Chance) -> None:
        left = harm(_positions(world, host), chance)
        world.write_entry(POSITIONS_BUCKET, positions_key(host.name), left)

    return change


def _older_positions(world: "World", host: "Host", chance: Chance) -> None:
    older = _positions(world, host)
    time.sleep(chance.uniform(*_MEANWHILE))
    world.write_entry(POSITIONS_BUCKET, positions_key(host.name), older)


def _entry(change: Change) -> Act:
    def act(world: "World", chance: Chance) -> None:
        world.operator.on_duty.set()
        number = chance.choice(world.partitions_in_use)
        if number in world.operator.stores:
            raise CannotStrike("the store of this partition is harmed")
        with dead(world) if chance.random() < 0.5 else nullcontext():
            left = change(world, number, chance)
            world.write_entry(OFFSETS_BUCKET, offset_key(number), left)
            _remember(world, number, left or b"")

    return act


def _remember(world: "World", partition: int, left: bytes) -> None:
    """Have the operator know the entry that stood before the harmed one."""
    values = [revision.value for revision in _revisions(world, partition)]
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


def _harmed_entry(harm: Harm) -> Change:
    return lambda world, partition, chance: harm(_newest(world, partition), chance)


def _older_entry(world: "World", partition: int, chance: Chance) -> bytes:
    older = [revision.value for revision in _revisions(world, partition)[:-1] if revision.value]
    if not older:
        raise CannotStrike("there is no older revision")
    return chance.choice(older)


def _moved_entry(world: "World", partition: int, chance: Chance) -> bytes:
    offset = Offset.decode(_newest(world, partition))
    by = chance.choice([-1, 1]) * chance.choice([1, 8, 100])
    return replace(offset, next=max(1, offset.next + by)).encode()


def _revisions(world: "World", partition: int) -> list[bucket.Revision]:
    return world.ask(lambda c: bucket.history(c, OFFSETS_BUCKET, offset_key(partition)))


def _newest(world: "World", partition: int) -> bytes:
    entry = world.ask(lambda c: bucket.read(c, OFFSETS_BUCKET, offset_key(partition)))
    if entry is None:
        raise CannotStrike("there is no entry")
    return entry.value


def _configured(value: bytes | None) -> Act:
    def act(world: "World", _: Chance) -> End:
        world.write_entry(CONFIG_BUCKET, PARTITIONS_KEY, value)

        def end() -> None:
            number = str(world.shape.partitions)
            insist("logbroker", "apply", "--yes", "--partitions", number, *world.admin_words)

        return end

    return act


def _no_bucket(name: str) -> Act:
    def act(world: "World", _: Chance) -> End:
        world.operator.on_duty.set()
        world.ask(lambda c: c.api(f"STREAM.DELETE.KV_{name}"))

        def end() -> None:
            insist("logbroker", "apply", "--yes", *world.admin_words)

        return end

    return act


def _consumer(change: Callable[["World", str, Chance], None]) -> Act:
    def act(world: "World", chance: Chance) -> None:
        world.operator.on_duty.set()
        change(world, consumer_name(chance.choice(world.partitions_in_use)), chance)

    return act


def _delete_consumer(world: "World", name: str, _: Chance) -> None:
    with _there_is_none():
        world.ask(lambda c: c.api(f"CONSUMER.DELETE.{STREAM}.{name}"), _SECONDS)


def _change_consumer(world: "World", name: str, chance: Chance) -> None:
    changes: list[dict[str, object]] = [
        {"ack_wait": 5_000_000_000},
        {"max_ack_pending": 1000},
        {"headers_only": True},
        {"filter_subject": partition_filter(0).replace(">", "nobody")},
    ]
    change = chance.choice(changes)
    with _there_is_none():
        config = world.ask(lambda c: c.api(f"CONSUMER.INFO.{STREAM}.{name}"), _SECONDS)["config"]
        body = {"stream_name": STREAM, "config": config | change, "action": "update"}
        world.ask(lambda c: c.api(f"CONSUMER.CREATE.{STREAM}.{name}", body), _SECONDS)


def _pause_consumer(world: "World", name: str, _: Chance) -> None:
    with _there_is_none():
        until = {"pause_until": "2100-01-01T00:00:00Z"}
        world.ask(lambda c: c.api(f"CONSUMER.PAUSE.{STREAM}.{name}", until), _SECONDS)


@contextmanager
def _there_is_none() -> Iterator[None]:
    try:
        yield
    except TimeoutError:  # the broker refuses, and goes on refusing
        raise CannotStrike("there is no such consumer") from None


_DAMAGES: dict[str, Harm] = {"deleted": _gone, "truncated": _cut, "flipped": _flipped}
_DAMAGES_OF_POSITIONS: dict[str, Harm] = {"deleted": _gone, "truncated": _cut, "garbled": _garbled}
"""None that only changes a number: the broker's own checksums keep what it stores from that."""
_ENTRIES: dict[str, Change] = {
    **{damage: _harmed_entry(harm) for damage, harm in _DAMAGES.items()},
    **{"older": _older_entry, "moved": _moved_entry},
}
_POSITIONS: dict[str, Snapshot] = {
    **{damage: _harmed_positions(harm) for damage, harm in _DAMAGES_OF_POSITIONS.items()},
    "older": _older_positions,
}
_CONSUMERS = {
    "deleted": _delete_consumer,
    "changed": _change_consumer,
    "paused": _pause_consumer,
}
_LATER = {
    "partitions-deleted": _configured(None),
    "partitions-garbled": _configured(b"\x03\xff"),
    "offsets-bucket-deleted": _no_bucket(OFFSETS_BUCKET),
    "positions-bucket-deleted": _no_bucket(POSITIONS_BUCKET),
}

for _name, _harm in _DAMAGES.items():
    FAMILY.add(f"mark-{_name}", _mark(_harm, is_dead=True), words=_OF_MARKS, weight=0.3)
    FAMILY.add(f"mark-{_name}-live", _mark(_harm, is_dead=False), words=_OF_MARKS, weight=0.3)
for _name, _change in _ENTRIES.items():
    FAMILY.add(f"entry-{_name}", _entry(_change), words=_OF_ENTRIES, weight=0.3)
for _name, _snapshot in _POSITIONS.items():
    FAMILY.add(f"positions-{_name}", _shipper(_snapshot), words=_OF_POSITIONS, weight=0.3)
for _name, _what in _CONSUMERS.items():
    FAMILY.add(f"consumer-{_name}", _consumer(_what), words=_OF_CONSUMERS, weight=0.3)
for _name, _act in _LATER.items():
    FAMILY.add(_name, _act, (1.0, 12.0), words=_OF_BUCKETS, weight=0.3)
