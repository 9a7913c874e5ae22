"""Faults of the stream: lines are destroyed there that no receiver has, and every one of them must be named.

Receivers stand still meanwhile, and what is destroyed is read first, so that it is known exactly.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from broker.app.exits import OperatorError
from broker.client.connection import Connection
from broker.inspect.ask import get_message
from broker.inspect.message import StoredMessage
from broker.wire.streams import STREAM
from tests.chaos.commands import insist
from tests.chaos.fault import MEMORY, CannotStrike, Chance, alone, dead, fault
from tests.chaos.losses import Destroyed
from tests.chaos.world import World

_BACKLOG = (1.5, 5.0)  # seconds that receivers are away before anything goes
_SHORT = (5.0, 15.0)  # seconds


@contextmanager
def _away(world: World, chance: Chance) -> Iterator[list[StoredMessage]]:
    """Have all receivers dead for a while, so that lines gather which nobody has, and yield these; one fault at a time."""
    with alone(MEMORY, "it is not known what was received"), dead(world):
        time.sleep(chance.uniform(*_BACKLOG))
        if not (waiting := _unreceived(world)):
            raise CannotStrike("everything has been received")
        yield waiting


def _unreceived(world: World) -> list[StoredMessage]:
    """Return the messages that no receiver has committed, in the order of the stream."""
    offsets = {number: world.offset(number) for number in world.partitions_in_use}

    async def read(connection: Connection) -> list[StoredMessage]:
        info = await connection.api(f"STREAM.INFO.{STREAM}")
        state, created = info["state"], info["created"]
        begins = {
            number: offset.next if offset and offset.stream_created == created else 1
            for number, offset in offsets.items()
        }
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


def _destroyed_with(messages: Iterable[StoredMessage]) -> list[Destroyed]:
    """Return what is destroyed with messages, section by section."""
    return [
        Destroyed(message.host, one.span.file, one.span.start, lines)
        for message in messages
        if message.sections  # no claim, nor a plain client's
        for one, (_, lines) in zip(message.sections, message.parts(), strict=True)
    ]


@fault(destroys=True)
def purge(world: World, chance: Chance) -> None:
    """Purge what no receiver has, of all hosts or of one, up to some message."""
    with _away(world, chance) as waiting:
        last = chance.choice(waiting)
        until = ("--before", f"seq:{last.sequence + 1}", "--yes")
        of_one = chance.choice(((), ("--host", last.host)))
        insist("logbroker", "purge", *of_one, *until, *world.admin_words)
        left = {message.sequence for message in _unreceived(world)}
        world.destroyed += _destroyed_with(m for m in waiting if m.sequence not in left)


@fault()
def short_of_space(world: World, chance: Chance) -> None:
    """Give the stream so little space for a while that retention purges all the time and hosts wait; nothing is lost by it."""
    with alone(MEMORY, "the stream is changed just now"):
        _hold(world, chance.randint(20, 200))
        time.sleep(chance.uniform(*_SHORT))
        _hold(world, -1)


def _hold(world: World, messages: int) -> None:
    """Let the stream hold so many messages, and refuse more."""

    async def update(connection: Connection) -> None:
        config = (await connection.api(f"STREAM.INFO.{STREAM}"))["config"]
        limited = {**config, "max_msgs": messages, "discard": "new"}
        await connection.api(f"STREAM.UPDATE.{STREAM}", limited)

    world.ask(update)
