"""The publishing end of an agent without its files: it claims, publishes, and recovers as whole agents do."""

from collections.abc import Callable

from broker.client.connection import Connection
from broker.wire.positions import Positions
from broker.wire.subjects import Subject
from shipper.publish.claim import Claimant, Ownership
from shipper.publish.config import BrokerConfig
from shipper.publish.messages import AgentId, HostMessages
from shipper.publish.publisher import Publisher, SessionLost
from shipper.publish.rounds import Round
from shipper.publish.snapshots import Snapshots
from shipper.publish.waiting import Waiting

__all__ = ["NOW", "PublishingAgent"]

NOW = 1_700_000_000_000_000_000


class PublishingAgent:
    """One agent of a host; `owned` is what its last claim gave, `lost` counts its sessions that were lost."""

    owned: Ownership

    def __init__(
        self,
        connection: Connection,
        tag: str = "aaaaaaaa",
        *,
        host: str = "web01",
        clock: Callable[[], int] = lambda: NOW,
    ) -> None:
        waiting = Waiting()
        self.messages = HostMessages(connection, host, 1)
        self.config = BrokerConfig(connection, host, clock)
        self.publisher = Publisher(connection, self.config, waiting)
        self.positions = Positions()
        self.lost = 0
        self.snapshots = Snapshots(connection, host)
        self._claimant = Claimant(self.messages, self.snapshots, waiting, tag, clock)

    async def open(self) -> "PublishingAgent":
        """Open a session."""
        await self.config.look()
        self.owned = await self._claimant.claim(self.config.subject, self.positions)
        self.positions = self.owned.positions
        self.publisher.begin(self.owned.subject, self.owned.last)
        return self

    @property
    def agent(self) -> AgentId:
        return self.owned.agent

    @property
    def subject(self) -> Subject:
        return self.owned.subject

    async def publish(self, round_: Round) -> int:
        """Publish a round, once; return the last sequence of the subject then."""
        while not self.has(round_):
            try:
                sequence = await self.publisher.publish(round_)
            except SessionLost:
                self.lost += 1
                await self.open()
            else:
                self.positions = self.positions.advance([round_.origin], sequence)
                return sequence
        return self.owned.last

    def has(self, round_: Round) -> bool:
        """Whether a round is stored as far as the positions tell."""
        span = round_.origin.sections[-1].span
        known = self.positions.files.get(span.file)
        return known is not None and known.offset >= span.end
