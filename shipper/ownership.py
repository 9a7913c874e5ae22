"""Ownership of a host's subject: claimed at the start of an agent, with the positions that the stream then has.

In any doubt everything is forgotten and asked of the stream again.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.connection import ConnectionLost, Rejected
from shipper.agent_id import AgentId
from shipper.positions import Positions
from shipper.registry import Registry
from shipper.verdict import Stored
from shipper.waiting import Waiting, cause_of, reason_of

__all__ = ["Ownership", "take_over"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ownership:
    """The agent that owns the subject since its claim, and where every file stood then."""

    agent: AgentId
    claim: int
    positions: Positions


async def take_over(
    registry: Registry, cached: Positions, tag: str, clock: Callable[[], int], waiting: Waiting
) -> Ownership:
    """Claim the subject and rebuild the positions, however long the broker takes.

    `cached` is what need not be read again; `tag` is eight random hex digits, `clock` nanoseconds since the epoch.
    """
    while True:
        try:
            ownership = await _attempt(registry, cached, tag, clock)
        except ConnectionLost as error:
            await waiting.pause(f"the broker did not answer: {error}")
            continue
        except Rejected as error:
            await waiting.pause(reason_of(error), cause_of(error))
            continue
        waiting.over()
        return ownership


async def _attempt(
    registry: Registry, cached: Positions, tag: str, clock: Callable[[], int]
) -> Ownership:
    newest = await registry.newest()
    agent = AgentId.following(newest.agent if newest else None, clock() // 1_000_000, tag)
    claim = await registry.claim(agent, clock())
    positions = await _rebuild(registry, cached)
    if positions.sequence < claim:
        raise ConnectionLost("the stream did not give back all of the own lines")
    return Ownership(agent, claim, positions)


async def _rebuild(registry: Registry, cached: Positions) -> Positions:
    if cached.sequence:
        replay = _Replay(cached)
        await registry.read(cached.sequence, replay.take)
        if replay.begins_with(cached):
            return replay.positions
        logger.info("the saved positions are not of this stream; reading all that it has")
    whole = _Replay(cached)
    await registry.read(1, whole.take)
    return whole.positions


class _Replay:
    """Positions on their way from the cached ones to those of the stream."""

    def __init__(self, cached: Positions) -> None:
        self.positions = cached
        self._first: Stored | None = None

    def take(self, page: Sequence[Stored]) -> None:
        self._first = self._first or page[0]
        origins = [message.origin for message in page if message.origin is not None]
        self.positions = self.positions.advance(origins, page[-1].sequence)

    def begins_with(self, cached: Positions) -> bool:
        first = self._first
        return (
            first is not None
            and first.sequence == cached.sequence
            and first.origin is not None
            and first.origin.agent == cached.agent
        )
