"""Faults of the stream: lines are destroyed there that no receiver has, and every one of them must be named.

Receivers stand still meanwhile, and shippers where the stream itself goes: what is destroyed is read first, so that it is
known exactly.
"""

import random
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from broker.connecting.connection import Connection
from broker.exits import OperatorError
from broker.looking.message import Held
from broker.looking.one import fetch
from broker.topology import STREAM
from tests.chaos.commands import insist
from tests.chaos.faults.fault import CannotStrike, FaultKind
from tests.chaos.losses import Destroyed, Range
from tests.chaos.program import Program
from tests.chaos.schedule import Kind

if TYPE_CHECKING:
    from tests.chaos.world import World

__all__ = ["KINDS"]

_BACKLOG = (1.5, 5.0)  # seconds that receivers are away before anything goes


def purge_all(world: "World", chance: random.Random) -> None:
    """Purge everything while receivers are away, through the API as any NATS tool does."""
    with _away(world, chance):
        doomed = _unreceived(world)
        until = _known(doomed)[-1].sequence + 1
        _destroy(world, doomed, lambda c: c.api(f"STREAM.PURGE.{STREAM}", {"seq": until}))


def purge_host(world: "World", chance: random.Random) -> None:
    """Purge one host's lines with `logbroker purge`, which leaves what its shipper goes by."""
    host = chance.choice(world.hosts).name
    with _away(world, chance):
        before = _unreceived(world)
        until = _known(before)[-1].sequence + 1
        words = ("purge", "--host", host, "--until-seq", str(until), "--yes", *world.admin_words)
        insist("logbroker", *words)
        left = {message.sequence for message in _unreceived(world)}
        world.destroyed += _as_destroyed(m for m in before if m.sequence not in left)


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
            world.destroyed += _as_destroyed([message])


def overtake(world: "World", chance: random.Random) -> None:
    """Have retention (a limit of messages) pass receivers that are away, and lift it again."""
    with _away(world, chance), _still(world.shippers):
        waiting = _known(_unreceived(world))
        kept = chance.randint(1, len(waiting))
        words = ("--yes", "--max-msgs", str(kept), "--discard", "old", *world.admin_words)
        insist("logbroker", "apply", *words)
        left = {message.sequence for message in _unreceived(world)}
        world.destroyed += _as_destroyed(m for m in waiting if m.sequence not in left)
        lifted = ("--yes", "--max-msgs", "-1", "--discard", "new", *world.admin_words)
        insist("logbroker", "apply", *lifted)


def make_anew(world: "World", chance: random.Random) -> None:
    """Delete the stream with all that nobody has received, and make it again."""
    world.operator.on_duty.set()
    with _away(world, chance), _still(world.shippers):
        doomed = _unreceived(world)
        _destroy(world, doomed, lambda c: c.api(f"STREAM.DELETE.{STREAM}"))
        insist("logbroker", "apply", "--yes", *world.admin_words)


def _known(messages: list[Held]) -> list[Held]:
    if not messages:
        raise CannotStrike("everything has been received")
    return messages


@contextmanager
def _away(world: "World", chance: random.Random) -> Iterator[None]:
    """Have all receivers dead for a while, tasks and all, so that lines gather which nobody has."""
    with ExitStack() as stack:
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


def _unreceived(world: "World") -> list[Held]:
    """Return the messages that no receiver has committed, in the order of the stream."""
    offsets = {number: world.offset(number) or 1 for number in world.partitions_in_use}

    async def read(connection: Connection) -> list[Held]:
        state = (await connection.api(f"STREAM.INFO.{STREAM}"))["state"]
        first = max(int(state["first_seq"]), min(offsets.values()))
        found: list[Held] = []
        for sequence in range(first, int(state["last_seq"]) + 1):
            try:
                message = await fetch(connection, sequence)
            except OperatorError:
                continue  # that's fine: it was removed before
            partition = message.subject.partition if message.subject else 0
            if sequence >= offsets.get(partition, 1):
                found.append(message)
        return found

    return world.ask(read)


def _destroy(
    world: "World", doomed: list[Held], how: Callable[[Connection], Coroutine[Any, Any, Any]]
) -> None:
    world.ask(how)
    world.destroyed += _as_destroyed(doomed)


def _as_destroyed(messages: Iterable[Held]) -> list[Destroyed]:
    return [
        Destroyed(
            message.host, message.file, span.file, Range(span.start, span.end), message.lines()
        )
        for message in messages
        if message.origin and (span := message.origin.span)
    ]


_ACTS = {
    "purge-all": purge_all,
    "purge-host": purge_host,
    "purge-part": purge_part,
    "remove-messages": remove_some,
    "overtake-by-limit": overtake,
    "make-stream-anew": make_anew,
}

KINDS = tuple(FaultKind(Kind(name, destroys=True), act) for name, act in _ACTS.items())
