"""Reads `LOGS_CONFIG` for one host: pause, interval of rounds, and partitions, hence its subject.

Every shipper subscribes to the subjects of the keys of pauses and of the interval: core NATS
delivers a new value at once, without a consumer for each host. The entries are also read after each
connect, those of pauses and partitions also before each claim and every ten seconds.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.timestamps import SECOND, to_datetime
from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.config import Partitions, read_interval, read_partitions
from nats_logship.client.connection import Connection
from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.interval import (
    INTERVAL_EXPIRES,
    INTERVAL_KEY,
    INTERVAL_SUBJECT,
    parse_interval,
)
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
from shipper.clock import Clock

_READ_EVERY = 10.0  # seconds
_CHECK_EVERY = 1.0  # seconds at most between checks for the end of a pause: hosts spread
_SHOWN = 40  # bytes of a value that cannot be read
logger = logging.getLogger(__name__)


class RoundInterval:
    """The shortest interval between two small rounds, for which the broker asks.

    It asks when all hosts together send many rounds. Its value is in force until it changes, or
    until no broker has written it again for three minutes; hosts' clocks are compared with nothing.
    `seconds` is 0 if the host may choose its own interval.
    `renewed` is when a value came last, in nanoseconds of the steady clock.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        """Ask for nothing yet; `clock` is the steady one."""
        self.seconds = 0.0
        self._clock = clock
        self.renewed = 0
        self._refused = b""

    def take(self, value: bytes) -> None:
        """Use the value of the key; one that cannot be read is logged and ignored."""
        seconds, refused = parse_interval(value), self._refused
        self._refused = b"" if seconds is not None else value[:_SHOWN]
        if seconds is not None:
            self.renewed = self._clock()
            self._change(seconds)
        elif self._refused != refused:
            entry = f"{CONFIG_BUCKET}/{INTERVAL_KEY}"
            logger.warning("%s is not an interval in seconds: %r; ignored", entry, self._refused)

    def expire(self) -> None:
        """Forget a value that no broker has written again; call it only while connected."""
        if self._clock() - self.renewed > INTERVAL_EXPIRES * SECOND:
            self._change(0.0)

    def _change(self, seconds: float) -> None:
        if seconds != self.seconds:
            self.seconds = seconds
            logger.info("the broker asks for at least %g s between two rounds", seconds)


class BrokerConfig:
    """The broker's configuration for one host: `partitions`, and the `subject` that follows.

    `interval` is the shortest one between two small rounds.
    """

    def __init__(self, connection: Connection, host: str, clock: Clock) -> None:
        """Read nothing yet."""
        self.partitions = Partitions(1, "", 0)
        self.subject = Subject.for_host(host, 1)
        self.interval = RoundInterval(clock.steady)
        self._connection = connection
        self._host = host
        self._clock = clock
        self._value = b""
        self._pauses: tuple[Pause, ...] = ()
        self._logged = ""
        self._received = 0

    @property
    def pause(self) -> Pause | None:
        """The pause of this host, None while it may publish."""
        now = to_datetime(self._clock.wall())
        return active_pause(self._pauses, self._host, now) if self._pauses else None

    async def read(self) -> None:
        """Read the entries; raises `Rejected`, `ConnectionLost`, `ConfigurationError`."""
        received = self._received
        entry = await bucket.read(self._connection, CONFIG_BUCKET, PAUSE_KEY)
        if received == self._received:  # else the value received meanwhile is newer
            self._take(entry.value if entry else b"")
        found = await read_partitions(self._connection)
        if found is None:
            raise Rejected(503, 0, "the number of partitions is not set")
        # a replica that lags answers with an older number
        if found.revision > self.partitions.revision:
            self.partitions = found
            self.subject = Subject.for_host(self._host, found.count)

    async def until_resumed(self) -> None:
        """Return when the host may publish, at most a second after the end of a pause."""
        while self.pause is not None:  # noqa: ASYNC110 - a pause ends by the clock
            await asyncio.sleep(random.uniform(0.1, _CHECK_EVERY))
        self._log()

    async def run(self) -> None:
        """Follow changes of the entries until cancelled."""
        while True:
            client = await self._connection.client()
            with suppress(ConnectionLost):
                await self._connection.tap(PAUSE_SUBJECT, self._receive)
                await self._connection.tap(INTERVAL_SUBJECT, self._receive_interval)
                await self._read_interval()
                while self._connection.is_current(client):
                    # an entry that cannot be read keeps its last value
                    with suppress(ConnectionLost, Rejected, ConfigurationError):
                        await self.read()
                    self.interval.expire()
                    self._log()
                    every = _READ_EVERY * random.uniform(0.75, 1.0)
                    await asyncio.wait({client.lost}, timeout=every)
            await asyncio.sleep(random.uniform(0, 1.0))  # not all hosts at once

    def _receive(self, message: RawMessage) -> None:
        self._received += 1
        self._take(message.data)

    def _receive_interval(self, message: RawMessage) -> None:
        self.interval.take(message.data)

    def _take(self, value: bytes) -> None:
        if value == self._value:
            return
        self._value = value
        try:
            self._pauses = decode_pauses(value)
        except UnreadablePauses as error:
            entry = f"{CONFIG_BUCKET}/{PAUSE_KEY}"
            logger.warning("%s cannot be read, so no host is paused: %s", entry, error)
            self._pauses = ()
        self._log()

    async def _read_interval(self) -> None:
        """Read the interval after a connect; raises `ConnectionLost`."""
        renewed = self.interval.renewed
        with suppress(Rejected):  # the one received last counts, and is written again
            entry = await read_interval(self._connection)
            if renewed == self.interval.renewed:  # else the value received meanwhile is newer
                self.interval.take(entry.value)

    def _log(self) -> None:
        """Log that a pause has begun, changed or ended."""
        before, self._logged = self._logged, str(self.pause or "")
        if before != self._logged:
            logger.info("%s", self._logged or "resumed: the pause is over")
