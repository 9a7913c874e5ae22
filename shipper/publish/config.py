"""What `LOGS_CONFIG` says to one host: the number of partitions, from which its subject follows, and whether it is paused.

Core NATS delivers what is written to the key of pauses to whoever subscribes to its subject: thousands of shippers cost no
consumer. What is heard counts at once. The entries are the truth: they are read behind each connect, before each claim, and
every ten seconds.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.timestamps import to_datetime
from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.config import Partitions, read_partitions
from nats_logship.client.connection import Connection
from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.pause import (
    PAUSE_KEY,
    PAUSE_SUBJECT,
    Pause,
    UnreadablePauses,
    active_pause,
    decode_pauses,
)
from nats_logship.wire.streams import CONFIG_BUCKET
from nats_logship.wire.subjects import Subject

_READ_EVERY = 10.0  # seconds
_NEXT_LOOK = 1.0  # seconds, at most, until the end of a pause is noticed: not by all hosts at once
logger = logging.getLogger(__name__)


class BrokerConfig:
    """The configuration of the broker, as far as it concerns one host; `clock` is nanoseconds since the epoch."""

    def __init__(self, connection: Connection, host: str, clock: Callable[[], int]) -> None:
        """Know nothing before `read` or `run`; `subject` is where the host's lines go with so many partitions."""
        self.partitions = Partitions(1, "", 0)
        self.subject = Subject.for_host(host, 1)
        self._connection = connection
        self._host = host
        self._clock = clock
        self._value = b""
        self._pauses: tuple[Pause, ...] = ()
        self._logged = ""
        self._heard = 0

    @property
    def pause(self) -> Pause | None:
        """The pause that holds this host, None while it may publish."""
        now = to_datetime(self._clock())
        return active_pause(self._pauses, self._host, now) if self._pauses else None

    async def read(self) -> None:
        """Read the entries; raises `Rejected`, `ConnectionLost`, and `ConfigurationError` for what is no number."""
        heard = self._heard
        entry = await bucket.read(self._connection, CONFIG_BUCKET, PAUSE_KEY)
        if heard == self._heard:  # else what was heard meanwhile is newer
            self._take(entry.value if entry else b"")
        found = await read_partitions(self._connection)
        if found is None:
            raise Rejected(503, 0, "the number of partitions is not set")
        # a replica that lags tells what was; who believed it would go back and forth
        if found.revision > self.partitions.revision:
            self.partitions = found
            self.subject = Subject.for_host(self._host, found.count)

    async def until_resumed(self) -> None:
        """Return at once while the host may publish, else within a second once it may again."""
        while self.pause is not None:  # noqa: ASYNC110 - a pause ends by the clock
            await asyncio.sleep(random.uniform(0.1, _NEXT_LOOK))
        self._log()

    async def run(self) -> None:
        """Keep up with the entries until cancelled."""
        while True:
            client = await self._connection.client()
            with suppress(ConnectionLost):
                await self._connection.tap(PAUSE_SUBJECT, self._hear)
                while self._connection.is_current(client):
                    # what cannot be read has not changed
                    with suppress(ConnectionLost, Rejected, ConfigurationError):
                        await self.read()
                    self._log()
                    every = _READ_EVERY * random.uniform(0.75, 1.0)
                    await asyncio.wait({client.lost}, timeout=every)
            await asyncio.sleep(random.uniform(0, 1.0))  # not all hosts at once

    def _hear(self, message: RawMessage) -> None:
        self._heard += 1
        self._take(message.data)

    def _take(self, value: bytes) -> None:
        if value == self._value:
            return
        self._value = value
        try:
            self._pauses = decode_pauses(value)
        except UnreadablePauses as error:
            entry = f"{CONFIG_BUCKET}/{PAUSE_KEY}"
            logger.warning("%s cannot be read, so nothing is paused: %s", entry, error)
            self._pauses = ()
        self._log()

    def _log(self) -> None:
        """Log that a pause has begun, has changed or is over."""
        before, self._logged = self._logged, str(self.pause or "")
        if before != self._logged:
            logger.info("%s", self._logged or "resumed: the pause is over")
