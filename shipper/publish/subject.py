"""Where a host's lines go: the subject that follows from the number of partitions, which the broker may change."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass

from broker.app.exits import ConfigurationError
from broker.client.bucket import read
from broker.client.config import read_streams
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY, partitions_in
from broker.wire.subjects import Subject
from shipper.publish.waiting import Waiting

__all__ = ["HostSubject", "Partitions"]

_ASK_EVERY = 10.0  # seconds, while there is something to ship
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Partitions:
    """How many there are, and when the broker was told so: no other broker was at the same nanosecond."""

    count: int
    time: str
    revision: int


class HostSubject:
    """The subject of a host, and whether the number of partitions was changed since it was found."""

    def __init__(
        self, connection: Connection, host: str, waiting: Waiting, ask_every: float = _ASK_EVERY
    ) -> None:
        """Know nothing before `find`; `ask_every` is in seconds."""
        self._connection = connection
        self._host = host
        self._waiting = waiting
        self._ask_every = ask_every
        self._found = self._newest = Partitions(1, "", 0)
        self.streams = 1  # that partitions are spread over
        self._asked = 0.0
        self._asking: asyncio.Task[None] | None = None

    async def find(self) -> Partitions:
        """Return how many partitions there are, the first time however long it takes until the broker says it.

        Raises `ConfigurationError` when it is no such number.
        """
        if self._newest.revision:
            with suppress(ConnectionLost, Rejected, ConfigurationError):
                await self._read_all()
        else:
            await self._waiting.until_answered(self._read_all)
        self._asked = asyncio.get_running_loop().time()
        self._found = self._newest
        return self._found

    @property
    def subject(self) -> Subject:
        """Where lines go."""
        return Subject.for_host(self._host, self._found.count)

    @property
    def has_changed(self) -> bool:
        """Whether the number was set anew; asks again in the background, now and then: no round waits for the answer."""
        now = asyncio.get_running_loop().time()
        is_over = self._asking is None or self._asking.done()
        if is_over and now - self._asked >= self._ask_every:
            self._asked = now
            self._asking = asyncio.create_task(self.ask())
        return self._newest is not self._found

    async def ask(self) -> None:
        """Learn whether the number was set anew; where that cannot be learnt, nothing has changed."""
        try:
            await self._read()
        except (ConnectionLost, Rejected, ConfigurationError) as error:
            logger.debug("the number of partitions is as it was: %s", error)

    async def _read_all(self) -> None:
        self.streams = await read_streams(self._connection)
        await self._read()

    async def _read(self) -> None:
        entry = await read(self._connection, CONFIG_BUCKET, PARTITIONS_KEY)
        if entry is None:
            raise Rejected(503, 0, "the number of partitions is not set")
        # a replica that lags tells what was; who believed it would go back and forth
        if entry.revision <= self._newest.revision:
            return
        number = partitions_in(entry.value)
        if number is None:
            raise ConfigurationError(
                f"the broker names {entry.value[:40]!r} as its number of partitions; run `logbroker apply`"
            )
        self._newest = Partitions(number, entry.time, entry.revision)
