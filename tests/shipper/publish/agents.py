"""An agent without files: it claims, publishes, and recovers as whole agents do."""

from collections.abc import Callable, Mapping
from typing import Any

from nats_logship.client.connection import Connection
from nats_logship.wire.positions import Positions
from nats_logship.wire.subjects import Subject
from shipper.clock import Clock
from shipper.publish.messages import HostMessage
from shipper.publish.publisher import Publisher, SessionLost
from shipper.publish.rounds import Round, make
from tests.shipper.shipped import block

NOW = 1_700_000_000_000_000_000
LINES = b"123456789\n" * 10


class PublishingAgent:
    """One agent of a host; `lost` counts its sessions that were lost."""

    def __init__(
        self,
        connection: Connection,
        tag: str = "aaaaaaaa",
        *,
        host: str = "web01",
        clock: Callable[[], int] = lambda: NOW,
    ) -> None:
        self._publisher = Publisher(connection, host, Clock(clock), tag=tag)
        self.config = self._publisher.config
        self.store = self._publisher.publish
        self.snapshots = self._publisher.snapshots
        self.retries = self._publisher.waiting.retries
        self.positions = Positions()
        self.lost = 0

    async def open(self) -> "PublishingAgent":
        """Open a session."""
        await self._publisher.prepare()
        self.positions = await self._publisher.open_session(self.positions)
        return self

    @property
    def agent(self) -> str:
        return self._publisher.agent

    async def publish(self, round_: Round) -> None:
        """Publish a round, once."""
        while not self.has(round_):
            try:
                sequence = await self.store(round_)
            except SessionLost:
                self.lost += 1
                await self.open()
            else:
                self.positions = self.positions.advance([round_.origin], sequence)

    def has(self, round_: Round) -> bool:
        """Whether a round is stored, by the positions."""
        span = round_.origin.sections[-1].span
        known = self.positions.files.get(span.file_id)
        return known is not None and known.offset >= span.end


def make_round(agent: str, start: int, lines: bytes, file: str) -> Round:
    """Return a round of the lines of one file, not compressed."""
    return make([block(start, lines, file)], agent, "none")


def round_of(agent: PublishingAgent, number: int) -> Round:
    """Return a round of 100 bytes, alternately of one of two files."""
    return make_round(agent.agent, 100 * number, b"%09d\n" % number + LINES[10:], f"f{number % 2}")


async def start(connection: Connection, tag: str = "aaaaaaaa") -> PublishingAgent:
    return await PublishingAgent(connection, tag).open()


async def config_of(connection: Connection) -> dict[str, Any]:
    return (await connection.api("STREAM.INFO.LOGS"))["config"]


def judge_move(before: HostMessage, one: HostMessage, stored: Mapping[int, HostMessage]) -> None:
    """Check the claims between two messages on different subjects: each names the other."""
    old, new = Subject.parse(before.subject), Subject.parse(one.subject)
    claims = [c for n, c in stored.items() if n < one.sequence and c.subject == str(new)]
    ends = [
        stored[end.sequence]
        for claim in claims
        if claim.origin
        for end in claim.origin.follows
        if end.partition == old.partition and before.sequence < end.sequence < claim.sequence
    ]
    assert any(e.subject == str(old) and e.origin and e.origin.moved == new.partition for e in ends)
