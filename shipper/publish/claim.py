"""The claim on a host's subjects: made at the start of a session, with the positions that the stream then has.

In any doubt everything is forgotten and asked of the stream again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from broker.app.exits import FencedError
from broker.app.faults import fault
from broker.client.answer import stored_at
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.message import EXPECTED_SEQUENCE, Origin, encode_origin
from broker.wire.streams import STREAM
from broker.wire.subjects import InvalidSubject, Subject
from shipper.positions import Positions
from shipper.publish.rebuild import ReadBack, origin_of, rebuild
from shipper.publish.snapshots import Snapshots
from shipper.publish.stored import AgentId, Ruling, Stored, Verdict, review
from shipper.publish.waiting import Waiting

__all__ = ["Ownership", "OwnershipLost", "Registry", "fenced_by", "hold", "take_over"]

_NO_MESSAGE = "404"


class Registry:
    """What the stream holds of one host, seen from the subject that its lines go to."""

    def __init__(self, connection: Connection, subject: Subject) -> None:
        """Remember the subject."""
        self._connection = connection
        self._subject = subject
        self.all = ReadBack(connection, subject.host)

    @property
    def subject(self) -> str:
        """The subject that this host's lines are published on."""
        return str(self._subject)

    def at(self, subject: Subject) -> "Registry":
        """Return the registry of another subject of the host."""
        return Registry(self._connection, subject)

    async def newest(self) -> Stored | None:
        """Return the last message of the subject, None when there is none (any more).

        Raises `Rejected` when there is no such stream, `ConnectionLost`.
        """
        answer = await self._connection.call(f"DIRECT.GET.{STREAM}.{self.subject}")
        headers = answer.headers or {}
        if "Nats-Sequence" not in headers and headers.get("Status") == _NO_MESSAGE:
            return None
        return Stored(int(headers["Nats-Sequence"]), origin_of(answer), self.subject)

    async def claim(self, agent: AgentId, now: int, expected: int | None = None) -> int:
        """Take the subject: store an empty message, after which no older agent can publish; return its sequence.

        `now` in nanoseconds; refused if the subject's last sequence is not `expected`, where that is given. After
        `ConnectionLost` it may be stored or not; a second claim does no harm.
        """
        headers = encode_origin(Origin(str(agent), now))
        if expected is not None:
            headers[EXPECTED_SEQUENCE] = str(expected)
        return stored_at(await self._connection.ask(self.subject, b"", headers))


_LOOKS, _LAG = 5, 0.1  # how often, and seconds between looks
logger = logging.getLogger(__name__)


class OwnershipLost(Exception):
    """An older agent's lines came between; this one must claim again and rebuild its positions."""


def fenced_by(rival: AgentId | None, subject: str) -> FencedError:
    """Return the error of an agent that another one has taken over from."""
    return FencedError(
        f"agent {rival} ships for the same host since then ({subject}); "
        "this one ends: run one shipper per host, or give each its own --host"
    )


@dataclass(frozen=True, slots=True)
class Ownership:
    """The agent that owns the subject since its claim, and where every file stood then."""

    agent: AgentId
    claim: int
    positions: Positions


async def take_over(
    registry: Registry,
    snapshots: Snapshots,
    known: Positions,
    tag: str,
    clock: Callable[[], int],
    waiting: Waiting,
) -> Ownership:
    """Claim the subject and rebuild the positions, however long the broker takes.

    `known` is what counts where there is no snapshot; `tag` is eight random hex digits, `clock` nanoseconds since the epoch.
    """
    return await waiting.until_answered(lambda: _attempt(registry, snapshots, known, tag, clock))


async def _attempt(
    registry: Registry,
    snapshots: Snapshots,
    known: Positions,
    tag: str,
    clock: Callable[[], int],
) -> Ownership:
    agent, claim = await _claim(registry, tag, clock)
    fault("claimed")
    heads = await _heads(registry, claim)
    strongest = max((head.agent for head in heads if head.agent), default=agent)
    if strongest > agent:  # of another subject, by a clock that ran ahead
        agent = AgentId.following(strongest, agent.start, tag)
        claim = await registry.claim(agent, clock())
    last = await _fence_elsewhere(registry, heads, agent, clock())
    positions = await rebuild(registry.all, await snapshots.read() or known)
    fault("rebuilt")
    if positions.sequence < max(claim, last):
        raise ConnectionLost("the stream did not give back all of the own lines")
    await snapshots.begin(positions)
    return Ownership(agent, claim, positions)


async def _claim(registry: Registry, tag: str, clock: Callable[[], int]) -> tuple[AgentId, int]:
    """Claim the subject as an agent above the last one there, which a replica that lags may not tell: then look again.

    Somebody who publishes without a pause must not keep us from it, so in the end it is claimed whatever comes between.
    """
    for attempt in range(_LOOKS):
        newest = await registry.newest()
        agent = AgentId.following(newest.agent if newest else None, clock() // 1_000_000, tag)
        expected = newest.sequence if newest else 0
        is_last = attempt == _LOOKS - 1
        try:
            return agent, await registry.claim(agent, clock(), None if is_last else expected)
        except Rejected as error:
            if is_last or not (error.is_wrong_sequence or error.is_write_under_way):
                raise
        await asyncio.sleep(_LAG)
    raise AssertionError("the last attempt returns or raises")


async def _heads(registry: Registry, claim: int) -> list[Stored]:
    heads = await registry.all.heads()
    if not any(head.sequence >= claim for head in heads):
        raise ConnectionLost("the stream does not show the claim yet")
    return heads


async def _fence_elsewhere(
    registry: Registry, heads: Sequence[Stored], agent: AgentId, now: int
) -> int:
    """Claim the subjects that the host had with other numbers of partitions: an older agent may still publish there."""
    last = 0
    for head in heads:
        if head.subject != registry.subject and (subject := _partition_of(head)):
            last = await registry.at(subject).claim(agent, now)
    return last


def _partition_of(head: Stored) -> Subject | None:
    try:
        return Subject.parse(head.subject)
    except InvalidSubject:
        return None  # a plain client's, no agent's


async def hold(registry: Registry, agent: AgentId, known: int, sent: Origin) -> Verdict:
    """Claim a subject of the host for the agent that owns one: a further one, or its own after an older agent's claim.

    `known` is the sequence up to which the agent knows what all subjects of the host hold, `sent` the origin of its round, which
    may be stored or not. Returns whether it is; the verdict's sequence is that of the claim. Raises
    `FencedError` when a newer agent was there before, `OwnershipLost` when an older one stored lines meanwhile,
    `ConnectionLost`, `Rejected`: then it may be claimed or not, and is to be claimed again.
    """
    newest = await registry.newest()
    if newest is not None and newest.agent is not None and newest.agent > agent:
        raise fenced_by(newest.agent, newest.subject)
    claim = await registry.claim(agent, sent.read_at, newest.sequence if newest else 0)
    heads = await _heads(registry, claim)
    rivals = [head for head in heads if head.agent is not None and head.agent != agent]
    for head in rivals:
        if head.agent is not None and head.agent > agent:
            raise fenced_by(head.agent, head.subject)
    await _fence_elsewhere(registry, rivals, agent, sent.read_at)
    seen: list[Stored] = []
    # a stream that was set back to a backup has the claim below what was known of it
    await registry.all.since(min(known + 1, claim), seen.extend)
    if not any(message.sequence == claim for message in seen):
        raise ConnectionLost("the stream does not show the claim yet")
    verdict = review(seen, sent)
    if verdict.ruling is Ruling.FENCED:
        raise fenced_by(verdict.rival, registry.subject)
    if verdict.ruling is Ruling.LOST:
        raise OwnershipLost(f"agent {verdict.rival} was still at work on {registry.subject}")
    return replace(verdict, last=claim)
