"""Waits for the next message of a partition, by a pull that the broker answers when there is one.

The pull is from a temporary consumer of headers, so that only tasks pull from the durable one.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from nats_logship.client.answer import IN_TOUCH, ConnectionLost, require_up_to_date
from nats_logship.client.connection import Connection
from nats_logship.client.stream_reader import StreamReader, at_sequence
from nats_logship.wire.subjects import partition_filter, wake_name

_EXPIRES = 30  # seconds that a pull waits at the broker before it is asked again
_LIVES = 120  # seconds for which the broker keeps the consumer without a pull
_AGAIN = 0.1  # seconds between pulls: one may be refused at once


@dataclass(slots=True)
class Wake:
    """The consumer that waits for messages of one partition.

    `epoch` distinguishes the consumers of several receivers, and may be set later. Methods raise
    `Rejected` and `ConnectionLost`.
    """

    connection: Connection
    partition: int
    stream: str
    epoch: int = 0

    @property
    def _reader(self) -> StreamReader:
        return StreamReader(
            self.connection,
            self.stream,
            name=wake_name(self.partition, self.epoch),
            filters=(partition_filter(self.partition),),
            headers_only=True,
            lives=_LIVES,
        )

    async def count(self, sequence: int) -> int:
        """Return how many messages of the partition the stream has from `sequence` on.

        In a cluster one of the replicas counts, which may lag.
        """
        return await self._reader.count(at_sequence(sequence))

    async def is_drained(self, sequence: int) -> bool:
        """Whether the stream has no message of the partition from `sequence` on.

        Raises `ConnectionLost` if the server that counts may not have all messages.
        """
        if (await self.connection.client()).is_clustered:
            await asyncio.sleep(IN_TOUCH)
        info, reader = await self.connection.api(f"STREAM.INFO.{self.stream}"), self._reader
        count = await reader.count(at_sequence(sequence))
        require_up_to_date(info, reader.server)
        return not count

    async def wait(self, sequence: int) -> bool:
        """Return True when the partition has a message at `sequence` or later."""
        while True:
            # created again after each pull that brought nothing: the client may be another one
            reader = self._reader
            if await reader.replace(at_sequence(sequence)):
                return True
            with suppress(ConnectionLost):
                if (await reader.pull(1, wait=_EXPIRES)).messages:
                    return True
            await asyncio.sleep(_AGAIN)

    async def close(self) -> None:
        """Delete the consumer; without a broker it ends by itself later."""
        await self._reader.delete()
