"""Entries in the broker and stores of receivers are deleted, garbled, moved or older.

A shipper mends its positions by itself. A receiver reports an error that names its partition, and
changes neither files nor offset: then an operator brings back what was there. After a lost bucket
of offsets, files are adopted.
"""

import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import (
    OFFSETS_BUCKET,
    POSITIONS_BUCKET,
    STREAM,
    offset_key,
    positions_key,
)
from nats_logship.wire.subjects import consumer_name
from receiver.storage.damage import Damaged
from receiver.storage.rows import StoredBatch
from receiver.storage.store import Store, make_store_path
from tests.chaos.fault import CannotStrike, Chance, add, alone, dead, fault
from tests.chaos.faults.rivals import TAKEN_OVER
from tests.chaos.program import SEEN, held
from tests.chaos.world import World
from tests.support.commands import retried, run_command

_LASTS = (0.5, 8.0)
_MEANWHILE = (1.0, 8.0)  # seconds in which things go on before an older copy is put back
_REPORTED, _REPORTED_ON_SPARK = 90.0, 240.0  # seconds within which a receiver reports the harm
_SECONDS = 10.0
HARMED = "what a receiver remembers is harmed already"

memory = Lock()
"""Held while a receiver's memory is harmed: nobody else may have changed what is put back."""

Harm = Callable[[bytes, Chance], bytes | None]
"""What becomes of a content, None for no content."""


def _deleted(_: bytes, __: Chance) -> None:
    return None


def _garbled(content: bytes, chance: Chance) -> bytes:
    return chance.choice((content[: chance.randrange(len(content))], chance.randbytes(100)))


def _moved(content: bytes, chance: Chance) -> bytes:
    offset = Offset.decode(content)
    by = chance.choice([-1, 1]) * chance.choice([1, 8, 100])
    return replace(offset, next=max(0, offset.next + by)).encode()


def _positions(world: World, chance: Chance, harm: Harm | None) -> None:
    """Harm the snapshot of a host's positions, or set it back; start the shipper again."""
    host = chance.choice(world.hosts)
    key = positions_key(host.name)
    older = world.read_entry(POSITIONS_BUCKET, key)
    if harm is None:
        time.sleep(chance.uniform(*_MEANWHILE))
    _require_headers(world)
    with held([host.shipper], kill=chance.random() < 0.5):
        change = lambda now: harm(now, chance) if harm else older  # noqa: E731
        if not world.change_entry(POSITIONS_BUCKET, key, change):
            raise CannotStrike("there is no entry")
        host.shipper.process.kill()


def _require_headers(world: World) -> None:
    """Raise `CannotStrike` if the stream has purged messages: only snapshots know their files."""
    if world.ask(lambda c: c.api(f"STREAM.INFO.{STREAM}"))["state"]["first_seq"] > 1:
        raise CannotStrike("the stream has let messages go")


for _what, _harm in {"deleted": _deleted, "garbled": _garbled, "older": None}.items():
    add(f"positions-{_what}", partial(_positions, harm=_harm))


def _listen(world: World) -> Callable[[bytes], bytes]:
    """Return a function that waits for a receiver's log line and returns the last group of it."""
    begins = {one.log: one.log.stat().st_size for one in world.receivers}

    def wait_for(pattern: bytes) -> bytes:
        found: list[re.Match[bytes]] = []

        def is_logged() -> bool:
            told = (log.read_bytes()[begin:] for log, begin in begins.items())
            found.extend(match for text in told if (match := re.search(pattern, text)))
            return bool(found)

        seconds = _REPORTED_ON_SPARK if world.spark else _REPORTED
        world.supervisor.wait(f"a receiver says {pattern!r}", is_logged, seconds)
        return bytes(found[0].groups()[-1])

    return wait_for


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition whose memory is harmed: offset and sizes of live files must not change."""

    world: World
    number: int
    wait_for: Callable[[bytes], bytes]
    entry: bytes
    lives: Mapping[Path, int] = field(default_factory=dict)

    def mend(self, bring_back: Callable[[], object]) -> None:
        """Restore the entry once a receiver has reported it, and start the receivers again."""
        report = (
            b"(?:partition |key p)%d\\b.*(`logreceiver offsets|start (?:it|the receiver) again)"
        )
        self.wait_for(report % self.number)
        with stopped(self.world):
            now = self.world.read_entry(OFFSETS_BUCKET, offset_key(self.number))
            if _position(now) != _position(self.entry):
                raise RuntimeError(f"partition {self.number}: {self.entry!r} became {now!r}")
            for live, size in self.lives.items():
                found = live.stat().st_size if live.exists() else None
                if found != size:
                    raise RuntimeError(f"{live.name}: {size} bytes when harmed, {found} now")
            bring_back()
            os.sync()  # a power cut may come next


def _position(entry: bytes) -> Offset | bytes:
    """Return an entry without its owner: a receiver may claim before it finds the harm."""
    try:
        offset = Offset.decode(entry)
        return replace(offset, epoch=0, owner="", presence="", released=False, committed_at="")
    except UnreadableOffset:
        return entry


@contextmanager
def stopped(world: World) -> Iterator[None]:
    """Kill all receivers, and start them again afterwards, also those that refused to go on."""
    with held(world.receivers, kill=True):
        retried(lambda: _wait_for_tasks(world))  # the disk may have trouble just now
        yield
        time.sleep(SEEN)  # one may have refused just now
        for receiver in world.receivers:
            if receiver.refused and not any(w in receiver.refused for w in TAKEN_OVER):
                receiver.go_on()


def _wait_for_tasks(world: World) -> None:
    """Return when the tasks of dead receivers have ended, and commands may take the lock."""
    with world.locked():
        pass


def _received(world: World, number: int) -> Offset:
    offset = world.offset(number)
    if offset is None or not offset.lines or offset.moved_in:
        raise CannotStrike("nothing was received yet")
    return offset


def _offset(world: World, chance: Chance, harm: Harm) -> Iterator[None]:
    """Harm the offset of a partition, while its receiver runs or is dead."""
    number = chance.choice(world.partitions_in_use)
    key = offset_key(number)
    with alone(memory, HARMED):
        _received(world, number)
        with dead(world) if chance.random() < 0.5 else nullcontext():
            wait_for = _listen(world)
            # kept, not read again: a leader that was cut off still answers with the old entry
            written: list[bytes] = []

            def change(now: bytes) -> bytes | None:
                harmed = harm(now, chance)
                written.append(harmed or b"")
                return harmed

            was = world.change_entry(OFFSETS_BUCKET, key, change)
        yield
        partition = _Partition(world, number, wait_for, (written or [b""])[-1])
        partition.mend(lambda: world.ask(lambda c: c.ask(f"$KV.{OFFSETS_BUCKET}.{key}", was)))


for _what, _change in {"deleted": _deleted, "garbled": _garbled, "moved": _moved}.items():
    add(f"offset-{_what}", partial(_offset, harm=_change), _LASTS)


def _store(world: World, chance: Chance, harm: Harm | None) -> Iterator[None]:
    """Harm the store of a partition, or put back an older copy of it, between two starts."""
    number = chance.choice(world.partitions_in_use)
    path = make_store_path(world.receiver_state, number)
    with alone(memory, HARMED), world.disks["central"].trouble():
        if harm is None:
            with dead(world):
                older, was = _copy(path), _batch(path)
            time.sleep(chance.uniform(*_MEANWHILE))
        with dead(world):
            offset, batch, copy = _received(world, number), _batch(path), _copy(path)
            if offset.commit != batch.commit_id or offset.next != batch.until:
                raise CannotStrike("what is stored is not committed")
            if harm is None and batch.commit_id == was.commit_id:
                raise CannotStrike("nothing was committed since")
            entry = world.read_entry(OFFSETS_BUCKET, offset_key(number))
            partition = _Partition(world, number, _listen(world), entry, _lives(world, path))
            _put(path, harm(path.read_bytes(), chance) if harm else older)
        yield
        partition.mend(lambda: _bring_back(path, copy))


for _what, _harm in {"deleted": _deleted, "garbled": _garbled, "older": None}.items():
    add(f"store-{_what}", partial(_store, harm=_harm), _LASTS)


def _bring_back(path: Path, copy: bytes) -> None:
    for end in ("-wal", "-shm", "-journal"):
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
    _put(path, copy)


def _put(path: Path, content: bytes | None) -> None:
    """Write a file whole, in place of what is there; None removes it."""
    if content is None:
        path.unlink()
        return
    fresh = path.with_name(f"{path.name}.copied")
    fresh.write_bytes(content)
    fresh.replace(path)


def _opened(path: Path) -> Store:
    try:
        return Store(path)
    except (Damaged, FileNotFoundError):
        raise CannotStrike("there is no store that can be read") from None


def _batch(path: Path) -> StoredBatch:
    with _opened(path) as store:
        if batch := store.read_batch():
            return batch
    raise CannotStrike("the store was never begun")


def _copy(path: Path) -> bytes:
    with _opened(path), closing(sqlite3.connect(path)) as opened:
        return opened.serialize()


def _lives(world: World, path: Path) -> dict[Path, int]:
    with _opened(path) as store:
        paths = [world.output / row.path for row in store.list_files()]
    return {one: one.stat().st_size for one in paths if one.exists()}


_CHANGES: tuple[dict[str, object], ...] = (
    {},
    {"pause_until": "2100-01-01T00:00:00Z"},
    {"ack_wait": 5 * 10**9},
    {"headers_only": True},
)


@fault(_LASTS)
def consumer_changed(world: World, chance: Chance) -> Iterator[None]:
    """Delete, change or pause the consumer of a partition; deleted, it is made again."""
    name = consumer_name(chance.choice(world.partitions_in_use))
    change, deletion = chance.choice(_CHANGES), f"CONSUMER.DELETE.{STREAM}.{name}"

    def call(what: str, body: dict[str, object] | None = None) -> dict[str, Any]:
        return world.ask(lambda c: c.api(f"CONSUMER.{what}.{STREAM}.{name}", body), _SECONDS)

    try:
        if "pause_until" in change:
            call("PAUSE", change)
        elif change:
            config = call("INFO")["config"] | change
            call("CREATE", {"stream_name": STREAM, "config": config, "action": "update"})
    except TimeoutError:  # the broker goes on refusing, or its answer to a change is lost
        world.delete(deletion)
        raise CannotStrike("there is no such consumer") from None
    if change:
        yield
    world.delete(deletion)


def _apply(world: World) -> None:
    retried(lambda: run_command("logbroker", "apply", "--yes", *world.admin_arguments, seconds=20))


@fault((1.0, 12.0))
def positions_bucket_deleted(world: World, _: Chance) -> Iterator[None]:
    """Take away the bucket of positions; an operator has `logbroker apply` make it again."""
    _require_headers(world)
    world.delete(f"STREAM.DELETE.KV_{POSITIONS_BUCKET}")
    yield
    _apply(world)


@fault((1.0, 12.0))
def offsets_bucket_deleted(world: World, _: Chance) -> Iterator[None]:
    """Delete the bucket of offsets; an operator does what the receiver says."""
    with alone(memory, HARMED):
        numbers = range(world.shape.partitions)
        with held(world.tables, kill=True):  # alive it takes this for `logreceiver table --forget`
            with dead(world):
                received = {str(number) for number in numbers if _has_received(world, number)}
                world.delete(f"STREAM.DELETE.KV_{OFFSETS_BUCKET}")
                wait_for = _listen(world)
            yield
            _apply(world)
        if received:
            advice = rb"`logreceiver (offsets adopt) --partition (?:[0-9]+,)*%d\b"
            for number in received:
                wait_for(advice % int(number))
            with stopped(world):
                folders = ("--output", world.output, "--state-dir", world.receiver_state)
                command = ("offsets", "adopt", "--partition", ",".join(sorted(received)))
                arguments = (*command, *folders, "--yes", *world.admin_arguments)
                retried(lambda: run_command("logreceiver", *arguments))


def _has_received(world: World, number: int) -> bool:
    """Whether a partition wrote files since `offsets adopt` that its offset does not include."""
    path = make_store_path(world.receiver_state, number)
    return path.exists() and _batch(path).until > 0
