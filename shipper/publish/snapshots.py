"""The snapshot of a host's positions in the broker: read at the start, written every minute by compare-and-set.

It holds what headers of the stream need not be read for again, and what they cannot tell.
"""

import asyncio
import logging

from broker.app.faults import fault
from broker.client import bucket
from broker.client.bucket import Conflict
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.positions import Positions, PositionsUnreadable
from broker.wire.streams import POSITIONS_BUCKET, positions_key
from shipper.publish.messages import fenced_by, newest_in
from shipper.publish.publisher import largest_payload

__all__ = ["Snapshots"]

logger = logging.getLogger(__name__)


class Snapshots:
    """The snapshot of one host, as one agent reads and writes it."""

    def __init__(self, connection: Connection, host: str) -> None:
        """Remember the host; nothing is asked before `read`."""
        self._connection = connection
        self._key = positions_key(host)
        self._revision = 0
        self._written: Positions | None = None
        self._found = Positions()  # what was written meanwhile, by retention or an older agent
        self._writing = asyncio.Lock()

    async def read(self) -> Positions:
        """Return the positions of the snapshot; none where there is no snapshot, or where it cannot be read, which is logged.

        Raises `Rejected` where there is no such bucket, `ConnectionLost`.
        """
        entry = await bucket.read(self._connection, POSITIONS_BUCKET, self._key)
        self._written = None
        self._revision = entry.revision if entry else 0
        try:
            return Positions.decode(entry.value) if entry else Positions()
        except PositionsUnreadable as error:
            logger.warning(
                "the snapshot %s/%s cannot be read: %s; reading the headers of the whole stream",
                POSITIONS_BUCKET,
                self._key,
                error,
            )
            return Positions()

    async def begin(self, positions: Positions) -> None:
        """Write the first snapshot of a session; raises `ConnectionLost` where the one that was read was not the last one."""
        self._found = Positions()
        await self._write_first(positions)

    async def write(self, positions: Positions) -> None:
        """Write the positions, unless they are those last written.

        Raises `FencedError` where a newer agent wrote before, `Rejected`, `ConnectionLost`: then they may be written or not.
        """
        async with self._writing:
            if positions is self._written:
                return
            try:
                await self._write(positions)
            except Conflict:
                # an older agent's came late, our own was not heard of, or retention has completed it with a round whose
                # acknowledgement was lost: that counts until the next claim, as the message may be purged
                self._found = await self.read()
                own, rival = newest_in(positions), newest_in(self._found)
                if own and rival and rival > own:
                    raise fenced_by(rival, f"{POSITIONS_BUCKET}/{self._key}") from None
                await self._write_first(positions)

    async def try_write(self, positions: Positions) -> None:
        """Write the positions if the broker takes them; a snapshot that cannot be written costs a longer start, and no line.

        Raises `FencedError`.
        """
        try:
            await self.write(positions)
        except (ConnectionLost, Rejected) as error:
            logger.warning(
                "cannot write the snapshot of the positions: %s; a restart reads them back from the stream",
                error,
            )

    async def _write_first(self, positions: Positions) -> None:
        try:
            await self._write(positions)
        except Conflict:
            raise ConnectionLost("the snapshot of the positions was written meanwhile") from None

    async def _write(self, positions: Positions) -> None:
        value = positions.joined(self._found).encode()
        if len(value) > await largest_payload(self._connection):
            raise Rejected(
                413,
                0,
                f"the snapshot of {len(positions.files)} files has {len(value)} bytes, which is larger than the broker takes; "
                "raise its max_payload, or ship fewer files",
            )
        fault("snapshot_sending")
        self._revision = await bucket.write(
            self._connection, POSITIONS_BUCKET, self._key, value, self._revision
        )
        self._written = positions
        fault("snapshot_written")
