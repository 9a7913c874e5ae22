"""Waits until a partition has something to receive, by a pull that the broker answers when there is; never by polling.

The pull is on a throw-away consumer that delivers headers only, so that the durable one is the tasks' alone.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from nats_logship.app.timestamps import SECOND
from nats_logship.client.answer import ConnectionLost, Rejected, in_touch, is_certain
from nats_logship.client.connection import Connection
from nats_logship.client.error_codes import ErrorCode
from nats_logship.client.pulling import pull
from nats_logship.wire.subjects import partition_filter, wake_name

_EXPIRES = 30  # seconds that a pull waits at the broker before it is asked again
_LIVES = 120  # seconds for which the broker keeps the consumer without a pull
_AGAIN = 0.1  # seconds between pulls: one may be refused at once
_CLOSE_PATIENCE = 1.0  # seconds
_SHORT = 0.7  # seconds for what may never be answered


def headers_only(subject: str, lives: int) -> dict[str, Any]:
    """Return the configuration of a consumer of headers, which lives so many seconds unasked."""
    return {
        "ack_policy": "none",
        "filter_subject": subject,
        "headers_only": True,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": lives * SECOND,
    }


def headers_from(sequence: int, partition: int, lives: int) -> dict[str, Any]:
    """Return the configuration of a consumer of a partition's headers from a sequence on."""
    start = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(sequence, 1)}
    return headers_only(partition_filter(partition), lives) | start


async def make_anew(
    connection: Connection, stream: str, name: str, config: Mapping[str, Any]
) -> int:
    """Make a consumer, in place of one of that name, and return its number of messages.

    Raises `Rejected`, `ConnectionLost`.
    """
    await remove(connection, stream, name)
    answer = await connection.api(
        f"CONSUMER.CREATE.{stream}.{name}.{config['filter_subject']}",
        {"stream_name": stream, "config": {**config, "name": name}},
    )
    return int(answer["num_pending"])


async def remove(connection: Connection, stream: str, name: str) -> None:
    """Take a consumer away, if there is one; raises `Rejected`."""
    try:
        # where its server has died it is taken away all the same, and nobody is left to say so
        with suppress(ConnectionLost):
            await connection.api(f"CONSUMER.DELETE.{stream}.{name}", patience=_SHORT)
    except Rejected as error:
        if error.error != ErrorCode.CONSUMER_NOT_FOUND:
            raise


@dataclass(slots=True)
class Wake:
    """The wake-up consumer of one partition; `epoch` tells those of several receivers apart, and may be set later."""

    connection: Connection
    partition: int
    stream: str
    epoch: int = 0

    @property
    def _name(self) -> str:
        return wake_name(self.partition, self.epoch)

    async def count(self, sequence: int) -> int:
        """Return how many messages of the partition there are from `sequence` on; raises `Rejected`, `ConnectionLost`."""
        config = headers_from(sequence, self.partition, _LIVES)
        return await make_anew(self.connection, self.stream, self._name, config)

    async def is_drained(self, sequence: int) -> bool:
        """Whether the partition has nothing from `sequence` on for sure, whichever replica of the broker counts it.

        Raises as `pending`, and `ConnectionLost` while a replica lags.
        """
        info = await self.connection.api(f"STREAM.INFO.{self.stream}")
        if not is_level(info):
            raise ConnectionLost("a replica lags, and may not have all that there is")
        return not await self.count(sequence)

    async def wait(self, sequence: int) -> None:
        """Return when the partition has a message at `sequence` or later; raises `Rejected`, `ConnectionLost`."""
        while not await self.count(sequence):
            if await self._pull():
                return
            await asyncio.sleep(_AGAIN)

    async def _pull(self) -> bool:
        """Pull once; False when nothing has come in the time. Everything is made anew then, on whatever client there is."""
        with suppress(ConnectionLost):
            pulled = await pull(self.connection, f"{self.stream}.{self._name}", 1, wait=_EXPIRES)
            return bool(pulled.messages)
        return False

    async def close(self) -> None:
        """Take the consumer away; a broker that is away does so by itself later."""
        with suppress(ConnectionLost, Rejected, TimeoutError):
            removed = remove(self.connection, self.stream, self._name)
            await asyncio.wait_for(removed, _CLOSE_PATIENCE)


def is_level(info: Mapping[str, Any]) -> bool:
    """Whether every replica that could be asked has all that the leader tells of; whoever is asked after this knows it."""
    return is_certain(info) and all(
        one.get("current") and not one.get("lag") for one in in_touch(info)
    )
