"""Whether an operator has paused this host: hears each change of the entry in KV, and reads the entry now and then.

Core NATS delivers what is written to the bucket to whoever subscribes to its subject: thousands of shippers cost no consumer and
no request. What is heard counts at once. The entry is the truth: it is read behind each connect, before each claim, and
about every minute, for what was not heard.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from broker.client import bucket
from broker.client.client import BrokerClient
from broker.client.connection import Connection, ConnectionLost, Denied, Message, Rejected
from broker.wire.pause import (
    PAUSE_KEY,
    PAUSE_SUBJECT,
    Pause,
    UnreadablePauses,
    decode_pauses,
    longest,
)
from broker.wire.streams import CONFIG_BUCKET

__all__ = ["PauseWatch"]

_FIRST_READ, _READ_EVERY = (
    1.0,
    60.0,
)  # seconds; the first soon: an entry may be on its way when it is read
_SPREAD = 1.0  # seconds in which the hosts of a pause resume: not all at once
_SECOND = 1_000_000_000
logger = logging.getLogger(__name__)


class PauseWatch:
    """The pause of one host; `current` is None while it may publish. `clock` is nanoseconds since the epoch."""

    def __init__(self, connection: Connection, host: str, clock: Callable[[], int]) -> None:
        """Know of no pause before `read` or `run`."""
        self.current: Pause | None = None
        self._connection = connection
        self._host = host
        self._clock = clock
        self._value = b""
        self._pauses: tuple[Pause, ...] = ()
        self._heard = 0
        self._is_deaf = False
        self._may_publish = asyncio.Event()
        self._may_publish.set()
        self._end: asyncio.TimerHandle | None = None

    async def until_over(self) -> None:
        """Return at once while the host may publish, else once it may again, at a random moment within a second."""
        while self.current is not None:
            await self._may_publish.wait()
            await asyncio.sleep(random.uniform(0, _SPREAD))

    async def run(self) -> None:
        """Keep up with the entry until cancelled."""
        while True:
            client = await self._connection.client()
            with suppress(ConnectionLost):
                await self._connection.subscribe(PAUSE_SUBJECT, self._hear)
                await self._read_now_and_then(client)
            await asyncio.sleep(random.uniform(0, _FIRST_READ))

    async def read(self) -> None:
        """Read the entry; raises `Rejected`, `ConnectionLost`. Who may not read it cannot be paused."""
        heard = self._heard
        try:
            entry = await bucket.read(self._connection, CONFIG_BUCKET, PAUSE_KEY)
        except Denied as error:
            if not error.subject.endswith(PAUSE_KEY):
                raise  # no answer at all may be heard
            if not self._is_deaf:
                logger.warning("this host cannot be paused: %s", error)
            self._is_deaf = True
            return
        if heard == self._heard:  # else what was heard meanwhile is newer
            self._take(entry.value if entry else b"")

    async def _read_now_and_then(self, client: BrokerClient) -> None:
        every = _FIRST_READ
        while self._connection.is_on(client):
            try:
                await self.read()
            except (ConnectionLost, Rejected) as error:
                logger.debug("a pause is not known of: %s", error)
            await asyncio.wait({client.lost}, timeout=every * random.uniform(0.75, 1.0))
            every = min(2 * every, _READ_EVERY)

    async def _hear(self, message: Message) -> None:
        self._heard += 1
        self._take(message.data)

    def _take(self, value: bytes) -> None:
        if value == self._value:
            return
        self._value = value
        try:
            self._pauses = decode_pauses(value)
        except UnreadablePauses as error:
            logger.warning(
                "the entry %s/%s cannot be read, so nothing is paused: %s",
                CONFIG_BUCKET,
                PAUSE_KEY,
                error,
            )
            self._pauses = ()
        self._judge()

    def _judge(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
        now = self._clock() / _SECOND
        found = longest(self._pauses, self._host, datetime.fromtimestamp(now, UTC))
        if found != self.current:
            logger.info("%s", found or "resumed: the pause is over")
        self.current = found
        if found is None:
            self._may_publish.set()
            return
        self._may_publish.clear()
        if (
            found.until is not None
        ):  # the clock may be set meanwhile: it is looked at again each minute
            left = min(_READ_EVERY, max(0.0, found.until.timestamp() - now))
            self._end = asyncio.get_running_loop().call_later(left, self._judge)
