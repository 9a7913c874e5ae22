"""Faults of what programs remember: files and entries deleted, cut, changed by a bit, or set back to what they were.

There is no checkpoint among it: offsets and positions live in KV. Most of it heals by itself; the rest has to be told, and is mended by
doing what was told (`tests.chaos.operating`). Nothing may be wrong in silence.
"""

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from broker.client import bucket
from broker.wire.offset import Offset
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
from tests.chaos.faults.fault import Act, CannotStrike, End, FaultKind
from tests.chaos.schedule import Kind

if TYPE_CHECKING:
    from tests.chaos.host import Host
    from tests.chaos.world import World

__all__ = ["KINDS"]

_SECONDS = 10.0
_MEANWHILE = (1.0, 4.0)  # seconds in which things go on before an older copy is put back

Harm = Callable[[bytes, random.Random], bytes | None]
"""What becomes of a content, None for no file; an older one is put back by `_older`."""
Find = Callable[["World", random.Random], Sequence[Path]]


def _gone(_: bytes, __: random.Random) -> None:
    return None


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def _flipped(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _garbled(content: bytes, chance: random.Random) -> bytes:
    return chance.randbytes(len(content))


def _damage(path: Path, harm: Harm, chance: random.Random) -> None:
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


def _chosen(find: Find, world: "World", chance: random.Random) -> Path:
    found = [path for path in find(world, chance) if path.exists()]
    if not found:
        raise CannotStrike("there is no such file yet")
    return chance.choice(found)


def _of_partition(suffix: str) -> Find:
    def find(world: "World", _: random.Random) -> list[Path]:
        return [world.receiver_state / f"p{n}.{suffix}" for n in world.partitions_in_use]

    return find


def _marks(world: "World", _: random.Random) -> list[Path]:
    folders = (world.output, world.receiver_state)
    bonds = [world.output / ".bonds" / f"p{number}" for number in world.partitions_in_use]
    return [*(folder / ".place" for folder in folders), *bonds, *_of_partition("bond")(world, _)]


def _owners(world: "World", _: random.Random) -> list[Path]:
    folder = world.output / ".owners"
    return [path for path in folder.glob("*") if path.is_file()] if folder.exists() else []


@contextmanager
def _dead(world: "World") -> Iterator[None]:
    """Have all receivers dead by -9, with their tasks."""
    with ExitStack() as stack:
        for receiver in world.receivers:
            stack.enter_context(receiver.held())
            receiver.process.kill()
        stack.enter_context(world.locked())
        yield


def _while_dead(find: Find, harm: Harm) -> Act:
    """Kill receivers and do harm; what it was like is what an operator can bring back."""

    def act(world: "World", chance: random.Random) -> None:
        """Kill receivers, and harm a file of theirs."""
        world.operator.on_duty.set()
        with _dead(world):
            path = _chosen(find, world, chance)
            content = path.read_bytes()
            _damage(path, harm, chance)
            world.harmed.append(path)
            world.operator.copies[path] = content

    return act


def _while_alive(find: Find, harm: Harm) -> Act:
    def act(world: "World", chance: random.Random) -> None:
        """Harm a file of receivers under their hands."""
        world.operator.on_duty.set()
        path = _chosen(find, world, chance)
        _damage(path, harm, chance)
        world.harmed.append(path)

    return act


def _older_while_dead(find: Find) -> Act:
    """Put back a copy from some seconds ago, as a careless restore does; the newer one is the operator's to bring back."""

    def act(world: "World", chance: random.Random) -> None:
        """Kill receivers, and put back a file of theirs from some seconds ago."""
        world.operator.on_duty.set()
        path = _chosen(find, world, chance)
        older = path.read_bytes()
        time.sleep(chance.uniform(*_MEANWHILE))
        with _dead(world):
            newer = path.read_bytes()
            if newer == older:
                raise CannotStrike(f"{path.name} has not changed")
            _put(path, older)
            world.harmed.append(path)
            world.operator.copies[path] = newer

    return act


def _older_while_alive(find: Find) -> Act:
    def act(world: "World", chance: random.Random) -> None:
        """Put back a file of receivers from some seconds ago under their hands."""
        world.operator.on_duty.set()
        path = _chosen(find, world, chance)
        older = path.read_bytes()
        time.sleep(chance.uniform(*_MEANWHILE))
        _put(path, older)
        world.harmed.append(path)

    return act


def _put(path: Path, content: bytes) -> None:
    fresh = path.with_name(f"{path.name}.copied")
    fresh.write_bytes(content)
    fresh.replace(path)


def _shipper(harm: Callable[["World", "Host", random.Random], None]) -> Act:
    """Do harm to the snapshot of a host's positions, while its shipper runs or is dead; it is started again in both cases."""

    def act(world: "World", chance: random.Random) -> None:
        """Harm the snapshot of a host's positions, while its shipper runs or is dead, and start the shipper again."""
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


def _harmed_positions(harm: Harm) -> Callable[["World", "Host", random.Random], None]:
    def change(world: "World", host: "Host", chance: random.Random) -> None:
        left = harm(_positions(world, host), chance)
        _write(world, POSITIONS_BUCKET, positions_key(host.name), left)

    return change


def _older_positions(world: "World", host: "Host", chance: random.Random) -> None:
    older = _positions(world, host)
    time.sleep(chance.uniform(*_MEANWHILE))
    _write(world, POSITIONS_BUCKET, positions_key(host.name), older)


def _entry(change: Callable[["World", int, random.Random], None]) -> Act:
    """Change the entry of a partition, while its receiver runs or while it is dead."""

    def act(world: "World", chance: random.Random) -> None:
        """Change the entry of a partition in the bucket of offsets."""
        world.operator.on_duty.set()
        number = chance.choice(world.partitions_in_use)
        if chance.random() < 0.5:
            change(world, number, chance)
            return
        with _dead(world):
            change(world, number, chance)

    return act


def _harmed_entry(harm: Harm) -> Callable[["World", int, random.Random], None]:
    def change(world: "World", partition: int, chance: random.Random) -> None:
        content = _newest(world, partition)
        left = harm(content, chance)
        _write(world, OFFSETS_BUCKET, offset_key(partition), left)

    return change


def _older_entry(world: "World", partition: int, chance: random.Random) -> None:
    revisions = world.ask(lambda c: bucket.history(c, OFFSETS_BUCKET, offset_key(partition)))
    older = [revision.value for revision in revisions[:-1] if revision.value]
    if not older:
        raise CannotStrike("there is no older revision")
    _write(world, OFFSETS_BUCKET, offset_key(partition), chance.choice(older))


def _moved_entry(world: "World", partition: int, chance: random.Random) -> None:
    offset = Offset.decode(_newest(world, partition))
    by = chance.choice([-1, 1]) * chance.choice([1, 8, 100])
    moved = replace(offset, next=max(1, offset.next + by))
    _write(world, OFFSETS_BUCKET, offset_key(partition), moved.encode())


def _newest(world: "World", partition: int) -> bytes:
    entry = world.ask(lambda c: bucket.read(c, OFFSETS_BUCKET, offset_key(partition)))
    if entry is None:
        raise CannotStrike("there is no entry")
    return entry.value


def _write(world: "World", name: str, key: str, value: bytes | None) -> None:
    """Write an entry as anybody with the rights may, without a look at what it was; None deletes it."""
    headers = {"KV-Operation": "DEL"} if value is None else {}
    world.ask(lambda c: c.ask(f"$KV.{name}.{key}", value or b"", headers))


def _configured(value: bytes | None) -> Act:
    """Take away how many partitions there are; an operator has `logbroker apply` say it again."""

    def act(world: "World", _: random.Random) -> End:
        """Take away how many partitions there are."""
        _write(world, CONFIG_BUCKET, PARTITIONS_KEY, value)

        def end() -> None:
            number = str(world.shape.partitions)
            insist("logbroker", "apply", "--yes", "--partitions", number, *world.admin_words)

        return end

    return act


def _no_bucket(name: str) -> Act:
    def act(world: "World", _: random.Random) -> End:
        """Delete the bucket of all offsets, or of all positions; an operator has `logbroker apply` make it again."""
        world.operator.on_duty.set()
        world.ask(lambda c: c.api(f"STREAM.DELETE.KV_{name}"))

        def end() -> None:
            insist("logbroker", "apply", "--yes", *world.admin_words)

        return end

    return act


def _consumer(change: Callable[["World", str, random.Random], None]) -> Act:
    """Do something to the consumer of a partition, with other hands."""

    def act(world: "World", chance: random.Random) -> None:
        """Do something to the consumer of a partition, with other hands."""
        world.operator.on_duty.set()
        change(world, consumer_name(chance.choice(world.partitions_in_use)), chance)

    return act


def _delete_consumer(world: "World", name: str, _: random.Random) -> None:
    with _there_is_none():
        world.ask(lambda c: c.api(f"CONSUMER.DELETE.{STREAM}.{name}"), _SECONDS)


def _change_consumer(world: "World", name: str, chance: random.Random) -> None:
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


def _pause_consumer(world: "World", name: str, _: random.Random) -> None:
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
_FILES: dict[str, Find] = {
    "journal": _of_partition("journal"),
    "spans": _of_partition("spans"),
    "gaps": _of_partition("gaps"),
    "lengths": _of_partition("lengths"),
    "marks": _marks,
    "owners": _owners,
}
_UNTOUCHED_BY_DEATH = ("lengths", "owners", "marks")
"""Losing these alone can cost no line and no second copy of one, whatever dies meanwhile."""


def _acts() -> Iterator[tuple[str, Act, bool]]:
    """Yield names, acts, and whether they destroy."""
    for what, find in _FILES.items():
        for damage, harm in _DAMAGES.items():
            yield f"{what}-{damage}", _while_dead(find, harm), False
            is_harmless = what in _UNTOUCHED_BY_DEATH
            yield f"{what}-{damage}-live", _while_alive(find, harm), not is_harmless
    for what in ("journal", "spans", "gaps"):
        yield f"{what}-older", _older_while_dead(_FILES[what]), False
        yield f"{what}-older-live", _older_while_alive(_FILES[what]), True
    for damage, harm in _DAMAGES.items():
        yield f"entry-{damage}", _entry(_harmed_entry(harm)), False
    for damage, harm in _DAMAGES_OF_POSITIONS.items():
        yield f"positions-{damage}", _shipper(_harmed_positions(harm)), False
    yield "positions-older", _shipper(_older_positions), False
    yield "entry-older", _entry(_older_entry), False
    yield "entry-moved", _entry(_moved_entry), False
    yield "consumer-deleted", _consumer(_delete_consumer), False
    yield "consumer-changed", _consumer(_change_consumer), False
    yield "consumer-paused", _consumer(_pause_consumer), False


_LATER = {
    "partitions-deleted": _configured(None),
    "partitions-garbled": _configured(b"\x03\xff"),
    "offsets-bucket-deleted": _no_bucket(OFFSETS_BUCKET),
    "positions-bucket-deleted": _no_bucket(POSITIONS_BUCKET),
}

KINDS = (
    *(FaultKind(Kind(name, weight=0.3, destroys=destroys), act) for name, act, destroys in _acts()),
    *(FaultKind(Kind(name, lasts=(1.0, 12.0), weight=0.3), act) for name, act in _LATER.items()),
)
