"""Publishes rounds that nobody waits for, for logs that are not worth a guarantee: they may be lost, or come twice."""

from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.streams import room_in
from shipper.publishing.compression import fitting
from shipper.publishing.heading import Heading
from shipper.publishing.rounds import Round
from shipper.publishing.sending import patience_for, send
from shipper.publishing.waiting import Waiting
from shipper.settings import Compression

__all__ = ["UnacknowledgedPublisher"]


class UnacknowledgedPublisher:
    """Hands rounds to the broker, and knows no more of them."""

    def __init__(
        self,
        connection: Connection,
        heading: Heading,
        waiting: Waiting,
        compression: Compression,
    ) -> None:
        """Remember where to publish."""
        self._compression = compression
        self._connection = connection
        self._heading = heading
        self._waiting = waiting

    async def publish(self, round_: Round) -> int:
        """Return 0 once the broker has read the round; what was under way when a connection broke is sent again."""
        while True:
            try:
                await self._send(round_)
            except ConnectionLost as error:
                await self._waiting.pause(f"the broker went away: {error}")
            except Rejected as error:
                await self._waiting.refused(error)
            else:
                self._waiting.over()
                return 0

    async def _send(self, round_: Round) -> None:
        client = await self._connection.client()
        subject = str(self._heading.subject)
        for part in fitting(round_, room_in(client.max_payload), self._compression):
            await send(self._connection, subject, part.payload, "", part.headers)
        patience = patience_for(len(round_.payload))
        await self._connection.guard(client.flush(int(patience)), patience, subject)
