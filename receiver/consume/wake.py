"""Waits for the next message of a partition, by a pull that the broker answers when there is one.

The pull is from a temporary consumer of headers, so that only tasks pull from the durable one.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from nats_logship.client.answer import ConnectionLost, is_certain, replicas_in_touch
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
        """Return how many messages of the partition the stream has from `sequence` on."""
        return await self._reader.count(at_sequence(sequence))

    async def is_drained(self, sequence: int) -> bool:
        """Whether no replica of the stream has a message of the partition from `sequence` on.

        Raises `ConnectionLost` while a replica lags.
        """
        info = await self.connection.api(f"STREAM.INFO.{self.stream}")
        if not is_level(info):
            raise ConnectionLost("a replica lags, and may not have all messages")
        return not await self.count(sequence)

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


def is_level(info: Mapping[str, Any]) -> bool:
    """Whether all replicas in touch have all messages that the leader reports in a STREAM.INFO.

    Whichever replica answers a later question then knows these messages.
    """
    return is_certain(info) and all(
        one.get("current") and not one.get("lag") for one in replicas_in_touch(info)
    )
