"""Publishes rounds that nobody waits for, for logs that are not worth a guarantee: they may be lost, or come twice."""

from broker.connecting.connection import Connection, ConnectionLost, Rejected
from broker.topology import room_in
from shipper.publishing.fitting import fit
from shipper.publishing.handover import hand_over, patience_for
from shipper.publishing.heading import Heading
from shipper.publishing.rounds import Round, unacknowledged
from shipper.publishing.waiting import Waiting

__all__ = ["UnacknowledgedPublisher"]


class UnacknowledgedPublisher:
    """Hands rounds to the broker, and knows no more of them."""

    def __init__(self, connection: Connection, heading: Heading, waiting: Waiting) -> None:
        """Remember where to publish."""
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
        subject = str(await self._heading.subject())
        fitted = Round(fit(round_.blocks, room_in(client.max_payload)))
        patience = patience_for(fitted.size)
        await hand_over(self._connection, subject, unacknowledged(fitted), "", patience)
        await self._connection.guard(client.flush(int(patience)), patience, subject)
