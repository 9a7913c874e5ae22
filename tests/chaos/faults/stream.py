"""Faults of the stream: lines are destroyed there that no receiver has, and every one of them must be named.

Receivers stand still meanwhile, and shippers where the stream itself goes: what is destroyed is read first, so that it is
known exactly.
"""

import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from broker.app.exits import OperatorError
from broker.client import bucket
from broker.client.connection import Connection
from broker.inspect.ask import get_message
from broker.inspect.message import StoredMessage
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.streams import OFFSETS_BUCKET, STREAM, offset_key
from tests.chaos.commands import insist
from tests.chaos.faults.fault import CannotStrike, Chance, Family, dead, held
from tests.chaos.losses import Destroyed

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["FAMILY", "destroyed_with"]

FAMILY = Family()
_TURNS = threading.Lock()
_PATIENCE = 60.0  # seconds
_BACKLOG = (1.5, 5.0)  # seconds that receivers are away before anything goes
_SHORT = (5.0, 15.0)  # seconds


@contextmanager
def _away(world: "World", chance: Chance) -> Iterator[list[StoredMessage]]:
    """Have all receivers dead for a while, so that lines gather which nobody has, and yield these; one fault at a time."""
    with _TURNS, dead(world):
        time.sleep(chance.uniform(*_BACKLOG))
        if not (waiting := _unreceived(world)):
            raise CannotStrike("everything has been received")
        yield waiting


def _lost(world: "World", before: Iterable[StoredMessage]) -> None:
    """Note what is not there any more of what was."""
    left = {message.sequence for message in _unreceived(world)}
    world.destroyed += destroyed_with(m for m in before if m.sequence not in left)


def _unreceived(world: "World") -> list[StoredMessage]:
    """Return the messages that no receiver has committed, in the order of the stream."""

    async def read(connection: Connection) -> list[StoredMessage]:
        info = await connection.api(f"STREAM.INFO.{STREAM}")
        state, created = info["state"], info["created"]
        begins = {n: await _offset(connection, n, created) for n in world.partitions_in_use}
        first, end = int(state["first_seq"]), int(state["last_seq"]) + 1
        found: list[StoredMessage] = []
        for sequence in range(max(first, min(begins.values())), end):
            try:
                message = await get_message(connection, STREAM, sequence)
            except OperatorError:
                continue  # that's fine: it was removed before
            partition = message.subject.partition if message.subject else 0
            if sequence >= begins.get(partition, 1):
                found.append(message)
        return found

    return world.ask(read)


async def _offset(connection: Connection, partition: int, created: str) -> int:
    """Return up to where a partition is committed in the stream of that time, and 1 where that is said of another one."""
    for revision in reversed(
        await bucket.history(connection, OFFSETS_BUCKET, offset_key(partition))
    ):
        with suppress(UnreadableOffset):
            offset = Offset.decode(revision.value)
            return offset.next if offset.stream_created == created else 1
    return 1


async def _state(connection: Connection) -> dict[str, Any]:
    return dict((await connection.api(f"STREAM.INFO.{STREAM}"))["state"])


def destroyed_with(messages: Iterable[StoredMessage]) -> list[Destroyed]:
    """Return what is destroyed with messages, section by section."""
    return [
        Destroyed(message.host, one.span.file, one.span.start, lines)
        for message in messages
        if message.sections  # no claim, nor a plain client's
        for one, (_, lines) in zip(message.sections, message.parts(), strict=True)
    ]


def _destroy(
    world: "World",
    doomed: list[StoredMessage],
    how: Callable[[Connection], Coroutine[Any, Any, Any]],
) -> None:
    world.ask(how)
    world.destroyed += destroyed_with(doomed)


@FAMILY.kind(destroys=True)
def purge_all(world: "World", chance: Chance) -> None:
    """Purge everything while receivers are away, through the API as any NATS tool does."""
    with _away(world, chance) as doomed:
        until = doomed[-1].sequence + 1
        _destroy(world, doomed, lambda c: c.api(f"STREAM.PURGE.{STREAM}", {"seq": until}))


@FAMILY.kind(destroys=True)
def purge_host(world: "World", chance: Chance) -> None:
    """Purge one host's lines with `logbroker purge`."""
    host = chance.choice(world.hosts).name
    with _away(world, chance) as before:
        until = str(before[-1].sequence + 1)
        words = ("purge", "--host", host, "--before", f"seq:{until}", "--yes", *world.admin_words)
        insist("logbroker", *words)
        _lost(world, before)


@FAMILY.kind(destroys=True)
def purge_part(world: "World", chance: Chance) -> None:
    """Purge what is below a sequence, in the middle of what no receiver has."""
    with _away(world, chance) as waiting:
        until = chance.choice(waiting).sequence + 1
        doomed = [message for message in waiting if message.sequence < until]
        _destroy(world, doomed, lambda c: c.api(f"STREAM.PURGE.{STREAM}", {"seq": until}))


@FAMILY.kind(destroys=True)
def remove_messages(world: "World", chance: Chance) -> None:
    """Remove single messages that no receiver has."""
    with _away(world, chance) as waiting:
        for message in chance.sample(waiting, k=min(len(waiting), chance.randint(1, 4))):
            words = ("rm", "--seq", str(message.sequence), "--yes", *world.admin_words)
            insist("logbroker", *words)
            world.destroyed += destroyed_with([message])


@FAMILY.kind(destroys=True)
def overtake_by_limit(world: "World", chance: Chance) -> None:
    """Have retention (a limit of messages) pass receivers that are away, and lift it again."""
    with _away(world, chance), held(world.shippers, kill=True):
        waiting = _unreceived(world)
        kept = str(chance.randint(1, len(waiting)))
        _apply(world, "--max-msgs", kept, "--discard", "old")
        _lost(world, waiting)
        _apply(world, "--max-msgs", "-1", "--discard", "new")


@FAMILY.kind(destroys=True)
def overtake_by_age(world: "World", chance: Chance) -> None:
    """Have retention by age pass receivers that are away, and give lines their time again."""
    with _away(world, chance), held(world.shippers, kill=True):
        waiting = _unreceived(world)
        _apply(world, "--max-age", "1s")
        some = chance.choice(waiting).sequence
        world.supervisor.wait(
            "lines grow old", lambda: int(world.ask(_state)["first_seq"]) > some, _PATIENCE
        )
        _apply(world, "--max-age", "1d")
        _lost(world, waiting)


@FAMILY.kind(destroys=True)
def make_stream_anew(world: "World", chance: Chance) -> None:
    """Delete the stream with all that nobody has received, and make it again."""
    world.operator.on_duty.set()
    with _away(world, chance), held(world.shippers, kill=True):
        _destroy(world, _unreceived(world), lambda c: c.api(f"STREAM.DELETE.{STREAM}"))
        _apply(world)


@FAMILY.kind()
def short_of_space(world: "World", chance: Chance) -> None:
    """Give the stream so little space for a while that retention purges all the time and hosts wait; nothing is lost by it."""
    with _TURNS:
        _apply(world, "--max-msgs", str(chance.randint(20, 200)), "--discard", "new")
        time.sleep(chance.uniform(*_SHORT))
        _apply(world, "--max-msgs", "-1")


def _apply(world: "World", *words: str) -> None:
    insist("logbroker", "apply", "--yes", *words, *world.admin_words)
