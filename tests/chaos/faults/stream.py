"""Faults of the stream: lines are destroyed there that no receiver has, and every one of them must be named.

Receivers stand still meanwhile, and shippers where the stream itself goes: what is destroyed is read first, so that it is
known exactly.
"""

import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from broker.app.exits import OperatorError
from broker.client.connection import Connection
from broker.inspect.get import get_message
from broker.inspect.message import StoredMessage
from broker.wire.streams import STREAM
from tests.chaos.commands import insist
from tests.chaos.faults.fault import CannotStrike, FaultKind
from tests.chaos.losses import Destroyed
from tests.chaos.program import Program
from tests.chaos.ranges import Range
from tests.chaos.schedule import Kind

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["KINDS", "destroyed_with"]

_TURNS = threading.Lock()
_PATIENCE = 60.0  # seconds
_BACKLOG = (1.5, 5.0)  # seconds that receivers are away before anything goes
_SHORT = (5.0, 15.0)  # seconds


def purge_all(world: "World", chance: random.Random) -> None:
    """Purge everything while receivers are away, through the API as any NATS tool does."""
    with _away(world, chance):
        doomed = _unreceived(world)
        until = _known(doomed)[-1].sequence + 1
        _destroy(world, doomed, lambda c: c.api(f"STREAM.PURGE.{STREAM}", {"seq": until}))


def purge_host(world: "World", chance: random.Random) -> None:
    """Purge one host's lines with `logbroker purge`."""
    host = chance.choice(world.hosts).name
    with _away(world, chance):
        before = _unreceived(world)
        until = _known(before)[-1].sequence + 1
        words = ("purge", "--host", host, "--until-seq", str(until), "--yes", *world.admin_words)
        insist("logbroker", *words)
        left = {message.sequence for message in _unreceived(world)}
        world.destroyed += destroyed_with(m for m in before if m.sequence not in left)


def purge_part(world: "World", chance: random.Random) -> None:
    """Purge what is below a sequence, in the middle of what no receiver has."""
    with _away(world, chance):
        waiting = _known(_unreceived(world))
        until = chance.choice(waiting).sequence + 1
        doomed = [message for message in waiting if message.sequence < until]
        _destroy(world, doomed, lambda c: c.api(f"STREAM.PURGE.{STREAM}", {"seq": until}))


def remove_some(world: "World", chance: random.Random) -> None:
    """Remove single messages that no receiver has."""
    with _away(world, chance):
        waiting = _known(_unreceived(world))
        for message in chance.sample(waiting, k=min(len(waiting), chance.randint(1, 4))):
            words = ("rm", "--seq", str(message.sequence), "--yes", *world.admin_words)
            insist("logbroker", *words)
            world.destroyed += destroyed_with([message])


def overtake(world: "World", chance: random.Random) -> None:
    """Have retention (a limit of messages) pass receivers that are away, and lift it again."""
    with _away(world, chance), _still(world.shippers):
        waiting = _known(_unreceived(world))
        kept = chance.randint(1, len(waiting))
        words = ("--yes", "--max-msgs", str(kept), "--discard", "old", *world.admin_words)
        insist("logbroker", "apply", *words)
        left = {message.sequence for message in _unreceived(world)}
        world.destroyed += destroyed_with(m for m in waiting if m.sequence not in left)
        lifted = ("--yes", "--max-msgs", "-1", "--discard", "new", *world.admin_words)
        insist("logbroker", "apply", *lifted)


def expire(world: "World", chance: random.Random) -> None:
    """Have retention by age pass receivers that are away, and give lines their time again."""
    with _away(world, chance), _still(world.shippers):
        waiting = _known(_unreceived(world))
        insist("logbroker", "apply", "--yes", "--max-age", "1s", *world.admin_words)
        some = chance.choice(waiting).sequence
        world.supervisor.wait("lines grow old", lambda: _begin(world) > some, seconds=_PATIENCE)
        insist("logbroker", "apply", "--yes", "--max-age", "1d", *world.admin_words)
        left = {message.sequence for message in _unreceived(world)}
        world.destroyed += destroyed_with(m for m in waiting if m.sequence not in left)


def run_short(world: "World", chance: random.Random) -> None:
    """Give the stream so little space for a while that retention purges all the time and hosts wait; nothing is lost by it."""
    limit = ("--max-msgs", str(chance.randint(20, 200)), "--discard", "new")
    with _TURNS:
        insist("logbroker", "apply", "--yes", *limit, *world.admin_words)
        time.sleep(chance.uniform(*_SHORT))
        insist("logbroker", "apply", "--yes", "--max-msgs", "-1", *world.admin_words)


def _begin(world: "World") -> int:
    return int(world.ask(_state)["first_seq"])


async def _state(connection: Connection) -> dict[str, Any]:
    return dict((await connection.api(f"STREAM.INFO.{STREAM}"))["state"])


def make_anew(world: "World", chance: random.Random) -> None:
    """Delete the stream with all that nobody has received, and make it again."""
    world.operator.on_duty.set()
    with _away(world, chance), _still(world.shippers):
        doomed = _unreceived(world)
        _destroy(world, doomed, lambda c: c.api(f"STREAM.DELETE.{STREAM}"))
        insist("logbroker", "apply", "--yes", *world.admin_words)


def _known(messages: list[StoredMessage]) -> list[StoredMessage]:
    if not messages:
        raise CannotStrike("everything has been received")
    return messages


@contextmanager
def _away(world: "World", chance: random.Random) -> Iterator[None]:
    """Have all receivers dead for a while, tasks and all, so that lines gather which nobody has; one fault at a time."""
    with ExitStack() as stack:
        stack.enter_context(_TURNS)
        for receiver in world.receivers:
            stack.enter_context(receiver.held())
            receiver.process.kill()
        stack.enter_context(world.locked())
        time.sleep(chance.uniform(*_BACKLOG))
        yield


@contextmanager
def _still(programs: list[Program]) -> Iterator[None]:
    """Have programs stand still."""
    with ExitStack() as stack:
        for program in programs:
            stack.enter_context(program.held())
            program.process.kill()
        yield


def _unreceived(world: "World") -> list[StoredMessage]:
    """Return the messages that no receiver has committed, in the order of the stream."""
    offsets = {number: world.offset(number) or 1 for number in world.partitions_in_use}

    async def read(connection: Connection) -> list[StoredMessage]:
        state = await _state(connection)
        first = max(int(state["first_seq"]), min(offsets.values()))
        found: list[StoredMessage] = []
        for sequence in range(first, int(state["last_seq"]) + 1):
            try:
                message = await get_message(connection, STREAM, sequence)
            except OperatorError:
                continue  # that's fine: it was removed before
            partition = message.subject.partition if message.subject else 0
            if sequence >= offsets.get(partition, 1):
                found.append(message)
        return found

    return world.ask(read)


def _destroy(
    world: "World",
    doomed: list[StoredMessage],
    how: Callable[[Connection], Coroutine[Any, Any, Any]],
) -> None:
    world.ask(how)
    world.destroyed += destroyed_with(doomed)


def destroyed_with(messages: Iterable[StoredMessage]) -> list[Destroyed]:
    """Return what is destroyed with messages, section by section."""
    return [
        Destroyed(message.host, path, one.span.file, Range(one.span.start, one.span.end), lines)
        for message in messages
        if message.sections  # no claim, nor a plain client's
        for one, (path, lines) in zip(message.sections, message.parts(), strict=True)
    ]


_ACTS = {
    "purge-all": purge_all,
    "purge-host": purge_host,
    "purge-part": purge_part,
    "remove-messages": remove_some,
    "overtake-by-limit": overtake,
    "overtake-by-age": expire,
    "make-stream-anew": make_anew,
}

KINDS = (
    *(FaultKind(Kind(name, destroys=True), act) for name, act in _ACTS.items()),
    FaultKind(Kind("short-of-space"), run_short),
)
