"""Reads the stream forward, in its order and without a hole, through a throw-away consumer. Changes nothing.

Nothing is asked twice: after a lost connection, a restarted broker or a consumer that went away, it goes on behind the
last message that was taken.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from nats.aio.subscription import Subscription

from broker.client.connection import Arrived, Connection, ConnectionLost, Rejected
from broker.wire.delivery import Delivery, parse
from broker.wire.streams import STREAM

__all__ = ["EACH_LAST", "Feed", "Start", "Taken", "at_sequence", "at_time"]

Start = Mapping[str, Any]
"""Where to begin, as a consumer is told it."""
EACH_LAST: Start = {"deliver_policy": "last_per_subject", "filter_subjects": [">"]}
"""Begin with the last message of every subject, in stream order, and go on with what comes."""

_BATCH = 5000  # messages; the bundled broker refuses more than 10,000 at a time
_PULL_BYTES = 8 * 1024 * 1024
_LARGEST = 64 * 1024 * 1024  # for a single message that exceeds it
_EXPIRES, _HEARTBEAT = 30, 5  # seconds
_QUIET = 2.0  # seconds without a message that should be there; then it is asked whether it still is
_SILENCE = 3 * _HEARTBEAT  # without a word the consumer, or the line, is gone
_FORGOTTEN = 60  # seconds after which the server removes a consumer that nobody pulls from
_NANOSECONDS = 1_000_000_000
_PAUSE = 0.5  # seconds before a broker that could not answer is asked again
_UNAVAILABLE = 503
_TOO_LARGE = "Exceeds MaxBytes"
_ENDS = ("404", "408", "409 Batch Completed", "409 Message Size Exceeds MaxBytes")
logger = logging.getLogger(__name__)


class Taken(NamedTuple):
    """A message with its place; headers only where that was asked for."""

    delivery: Delivery
    message: Arrived


def at_sequence(sequence: int) -> Start:
    """Begin with the first message at `sequence` or behind it."""
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, sequence)}


def at_time(time: datetime) -> Start:
    """Begin with the first message stored at `time`, aware, or later."""
    text = time.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return {"deliver_policy": "by_start_time", "opt_start_time": text}


class Feed:
    """Messages of the stream from a place on; `pending` is how many are there and not taken yet, None before the first look."""

    def __init__(
        self,
        connection: Connection,
        start: Start,
        filters: Sequence[str] = (),
        *,
        headers_only: bool = False,
    ) -> None:
        """Take messages whose subject fits one of `filters`, none meaning all. Ask nothing yet."""
        self.pending: int | None = None
        self._connection = connection
        self._config: dict[str, Any] = {"headers_only": True} if headers_only else {}
        if filters:
            self._config["filter_subjects"] = list(filters)
        self._start = start
        self._next = 0  # 0 before the first message
        self._created = ""
        self._client: object = None
        self._consumer = self._inbox = ""
        self._subscription: Subscription | None = None
        self._number = 0
        self._taken: list[Taken] = []
        self._status = ""  # what ended the last pull; empty while one is under way
        self._news = asyncio.Event()

    async def take(self) -> list[Taken]:
        """Return the messages that have come since, at least one, waiting for it as long as it takes.

        Raises `ConnectionLost`, after which the next call goes on where this one was, or `Rejected`.
        """
        if self._client is None or await self._connection.client() is not self._client:
            await self._open()
        return await self._news_within(None)

    async def take_up_to(self, last: int) -> list[Taken]:
        """Return more of what is there up to the sequence `last`, none when that was all; raises what `take` raises.

        What came behind it meanwhile may be among it. What is purged, or expires, meanwhile is not waited for.
        """
        quiet: float = _QUIET
        while True:
            if self._client is None:
                await self._open()
            if not self.pending or self._next > last:
                return []
            if taken := await self._news_within(quiet):
                return taken
            if await self._has_ended():
                self.pending = 0
                return []
            # nats-server may count as pending, and never deliver, what was there before a purge: a new consumer does not
            await self.close()
            quiet = min(2 * quiet, _SILENCE)

    async def wait(self) -> list[Taken]:
        """Return what has come since, through restarts of the broker; raises `Rejected` for what no waiting mends."""
        while True:
            try:
                return await self.take()
            except ConnectionLost as error:
                logger.debug("reading anew: %s", error)
            except Rejected as error:
                if error.code != _UNAVAILABLE:
                    raise
            await asyncio.sleep(_PAUSE)

    async def close(self) -> None:
        """Have the consumer removed; a broker that is away removes it by itself."""
        if self._client is None:
            return
        name = f"CONSUMER.DELETE.{STREAM}.{self._consumer}"
        with suppress(ConnectionLost, Rejected, TimeoutError):
            async with asyncio.timeout(1):
                await self._connection.api(name, patience=1)
        await self._forget()

    async def _news_within(self, quiet: float | None) -> list[Taken]:
        """Return the messages that have come, none after so many seconds without any; None waits for ever."""
        try:
            async with asyncio.timeout(quiet):
                while not self._taken:
                    if self._status:
                        await self._pull_again()
                    self._news.clear()
                    await self._connection.guard(self._heard(), _SILENCE)
            return self._checked()
        except TimeoutError:
            return []
        except ConnectionLost:
            self._client = None
            raise

    async def _has_ended(self) -> bool:
        """Whether the consumer has delivered all that it had to, and all of that has come."""
        try:
            info = await self._connection.api(f"CONSUMER.INFO.{STREAM}.{self._consumer}")
        except (ConnectionLost, Rejected):
            return False
        return not info["num_pending"] and info["delivered"]["consumer_seq"] < self._number

    async def _open(self) -> None:
        await self._forget()
        client = await self._connection.client()
        self._look(await self._connection.api(f"STREAM.INFO.{STREAM}"))
        self._inbox = self._connection.new_inbox()
        self._subscription = await self._connection.tap(self._inbox, self._hear(self._inbox))
        self._consumer = f"logbroker-{secrets.token_hex(8)}"
        config = {
            "name": self._consumer,
            **(at_sequence(self._next) if self._next else self._start),
            **self._config,
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": _FORGOTTEN * _NANOSECONDS,
        }
        made = await self._connection.api(
            f"CONSUMER.CREATE.{STREAM}.{self._consumer}",
            {"stream_name": STREAM, "config": config, "action": "create"},
        )
        self.pending = made["num_pending"]
        self._number, self._taken = 1, []
        await self._pull(_BATCH, _PULL_BYTES)
        self._client = client  # not before: the next call begins again with what failed half-way

    async def _forget(self) -> None:
        before, self._client, self._subscription = self._subscription, None, None
        if before is not None:
            with suppress(ConnectionLost):
                await self._connection.guard(before.unsubscribe(), _HEARTBEAT)

    def _look(self, info: Mapping[str, Any]) -> None:
        if self._created and info["created"] != self._created:
            logger.warning("stream %s was made anew; going on with its first message", STREAM)
            self._next = 1
        elif 0 < self._next < info["state"]["first_seq"]:
            logger.warning(
                "the stream begins with %d by now: messages from %d on went before they were read",
                info["state"]["first_seq"],
                self._next,
            )
        self._created = info["created"]

    async def _pull_again(self) -> None:
        if not self._status.startswith(_ENDS):
            raise ConnectionLost(f"the broker ended a pull with {self._status}")
        if _TOO_LARGE in self._status:  # it would never come in a pull of the usual size
            await self._pull(1, _LARGEST)
        else:
            await self._pull(_BATCH, _PULL_BYTES)

    async def _pull(self, messages: int, size: int) -> None:
        self._status = ""
        request = {
            "batch": messages,
            "max_bytes": size,
            "expires": _EXPIRES * _NANOSECONDS,
            "idle_heartbeat": _HEARTBEAT * _NANOSECONDS,
        }
        await self._connection.publish(
            self._connection.api_now(f"CONSUMER.MSG.NEXT.{STREAM}.{self._consumer}"),
            json.dumps(request).encode(),
            reply=self._inbox,
        )

    async def _heard(self) -> None:
        await self._news.wait()

    def _hear(self, inbox: str) -> Any:
        def tap(message: Arrived) -> None:
            if inbox != self._inbox:
                return  # of a consumer that was given up
            if delivery := parse(message.reply):
                self._taken.append(Taken(delivery, message))
            elif message.subject == inbox:
                headers = message.headers or {}
                if (status := headers.get("Status", "")) != "100":
                    self._status = f"{status} {headers.get('Description', '')}"
            self._news.set()

        return tap

    def _checked(self) -> list[Taken]:
        """Return the messages that are in their place; the rest is read again."""
        taken, self._taken = self._taken, []
        for place, (delivery, _) in enumerate(taken):
            if delivery.number != self._number or delivery.sequence < self._next:
                self._client, taken = None, taken[:place]
                if not taken:
                    raise ConnectionLost(f"delivery {delivery.number} where {self._number} was due")
                break
            self._number, self._next = delivery.number + 1, delivery.sequence + 1
        self.pending = taken[-1].delivery.pending
        return taken
