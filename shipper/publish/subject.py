"""Where a host's lines go: the subject that follows from the number of partitions, which the broker may change.

Asks, and never decides what becomes of the lines on the way.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from broker.app.exits import ConfigurationError
from broker.client.bucket import Entry, read
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY, partitions_in
from broker.wire.subjects import Subject
from shipper.publish.waiting import Cause, Waiting

__all__ = ["HostSubject", "Partitions", "partitions_of"]

_ASK_EVERY = (
    10.0  # seconds; a question each time there is something to ship, and none while there is not
)
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Partitions:
    """How many there are, and when the broker was told so: no other broker was at the same nanosecond."""

    count: int
    time: str


class HostSubject:
    """The subject of a host, asked for again now and then."""

    def __init__(
        self,
        connection: Connection,
        subject: Subject,
        ask_every: float = _ASK_EVERY,
        tell: Callable[[Partitions], None] = lambda _: None,
    ) -> None:
        """Begin at a subject that was found just now; `ask_every` is in seconds, `tell` hears of every answer."""
        self._connection = connection
        self._subject = subject
        self._ask_every = ask_every
        self._tell = tell
        self._revision = 0
        self._asked = asyncio.get_running_loop().time()
        self._asking: asyncio.Task[None] | None = None

    @property
    def subject(self) -> Subject:
        """Where lines go, as far as it is known; asks again beside, now and then: no round waits for the answer."""
        now = asyncio.get_running_loop().time()
        is_over = self._asking is None or self._asking.done()
        if is_over and now - self._asked >= self._ask_every:
            self._asked = now
            self._asking = asyncio.create_task(self.ask())
        return self._subject

    async def ask(self) -> None:
        """Learn where lines go now; where that cannot be learnt, they go where they went."""
        try:
            entry = await read(self._connection, CONFIG_BUCKET, PARTITIONS_KEY)
            # a replica that lags tells what was; who believed it would go back and forth
            if entry and entry.revision > self._revision:
                self._revision = entry.revision
                partitions = _partitions(entry)
                self._subject = Subject.for_host(self._subject.host, partitions.count)
                self._tell(partitions)
        except (ConnectionLost, Rejected, ConfigurationError) as error:
            logger.debug("the number of partitions is as it was: %s", error)


async def partitions_of(connection: Connection, waiting: Waiting) -> Partitions:
    """Return how many partitions there are, however long it takes until the broker says it.

    Raises `ConfigurationError` when it is no such number.
    """
    while True:
        try:
            if entry := await read(connection, CONFIG_BUCKET, PARTITIONS_KEY):
                waiting.over()
                return _partitions(entry)
            unset = "the number of partitions is not set; run `logbroker apply`"
            await waiting.pause(unset, Cause.MISSING)
        except Rejected as error:
            await waiting.refused(error)
        except ConnectionLost as error:
            await waiting.pause(f"the broker did not answer: {error}")


def _partitions(entry: Entry) -> Partitions:
    number = partitions_in(entry.value)
    if number is None:
        raise ConfigurationError(
            f"the broker names {entry.value[:40]!r} as its number of partitions; run `logbroker apply`"
        )
    return Partitions(number, entry.time)
