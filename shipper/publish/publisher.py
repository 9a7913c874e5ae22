"""Publishes rounds, one at a time and in order: stored once, whatever has to be retried.

A round names the subject's last sequence, so one that was stored before is refused. A refusal ends the session: only the
stream can say what became of the round. Never sends a round while another one is in flight.
"""

import asyncio
import random

from nats.aio.client import Client

from broker.app.exits import ConfigurationError
from broker.app.faults import fault
from broker.client.answer import ConnectionLost, Rejected, stored_at
from broker.client.connection import Connection
from broker.wire.message import EXPECTED_SEQUENCE
from broker.wire.streams import largest_in
from broker.wire.subjects import Subject
from shipper.publish.config import BrokerConfig
from shipper.publish.rounds import Round
from shipper.publish.waiting import Waiting

_LEAST_PATIENCE = 30.0  # seconds
_SLOWEST = 20_000  # bytes a second, of a line that still takes a round
_DUE = 5.0  # seconds for an answer by a server of several, once it has read a round
_NEXT_TRY = 0.01  # seconds, while another write of the subject is under way
_MOST_TRIES = 300  # before that is logged, and longer waited for
_MESSAGE_TOO_LARGE = 10054
_LEAST_PAYLOAD = 1024


class SessionLost(Exception):
    """The claim does not hold any more: claim again, rebuild the positions, and go back to them."""


async def largest_payload(connection: Connection) -> int:
    """Return how many bytes the broker takes at a time, beside our headers; waits for a live client."""
    return largest_in((await connection.client()).max_payload)


class Publisher:
    """Publishes the rounds of an agent, for one session after the other."""

    def __init__(self, connection: Connection, config: BrokerConfig, waiting: Waiting) -> None:
        """Own nothing before `begin`."""
        self._connection = connection
        self._config = config
        self._waiting = waiting
        self._largest: int | None = None  # that the stream takes, where the server takes more
        self._subject: Subject | None = None
        self._last = self._tries = 0

    def begin(self, subject: Subject, last: int) -> None:
        """Publish behind a claim from now on: to `subject`, whose last sequence is `last`."""
        self._subject, self._last = subject, last

    async def largest(self) -> int:
        """Return how many bytes the broker takes at a time; raises `ConfigurationError` where that is too few for a round."""
        most = await largest_payload(self._connection)
        most = min(most, self._largest or most)
        if most < _LEAST_PAYLOAD:
            raise ConfigurationError(
                f"the broker takes {most} bytes at a time, too few for a round; raise its max_payload "
                "and the stream's max_msg_size"
            )
        return most

    async def publish(self, round_: Round) -> int:
        """Return the stream sequence of the round's message once it is on disk, however long that takes.

        Raises `SessionLost`, `ConfigurationError` where the broker takes no round at all.
        """
        while True:
            await self._until_open(round_)
            if self._config.subject != self._subject:
                raise SessionLost("the number of partitions changed")
            try:
                self._last = await self._store(round_)
            except ConnectionLost as error:
                # it is stored or not; sent again with the same sequence it is stored once
                await self._waiting.pause(f"no acknowledgement from the broker: {error}")
            except Rejected as error:
                await self._refused(error, len(round_.payload))
            else:
                self._tries = 0
                self._waiting.over()
                return self._last

    async def publish_unacknowledged(self, round_: Round) -> int:
        """Return 0 once the broker has read the round; what was under way when a connection broke is sent again."""
        await self._waiting.until_answered(lambda: self._send(round_))
        return 0

    async def _until_open(self, round_: Round) -> None:
        """Return when a round may be sent; raises `SessionLost` where it is too large by now."""
        await self._config.until_resumed()
        self._config.look_soon()
        if len(round_.payload) > (most := await self.largest()):
            raise SessionLost(f"the broker takes {most} bytes at a time now")

    async def _send(self, round_: Round) -> None:
        await self._until_open(round_)
        client, subject = await self._connection.client(), str(self._config.subject)
        sending = self._connection.publish(subject, round_.payload, "", round_.headers)
        await self._connection.guard(sending, _patience(round_), subject)
        await self._flush(client, round_)

    async def _store(self, round_: Round) -> int:
        """Send a round and return its sequence; raises `ConnectionLost`, `Rejected`."""
        headers = round_.headers | {EXPECTED_SEQUENCE: str(self._last)}
        client = await self._connection.client()
        fault("sending")
        asking = asyncio.create_task(
            self._connection.ask(str(self._subject), round_.payload, headers, _patience(round_))
        )
        asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            if self._connection.has_choice:
                # what was sent on to a leader that died is never answered: another server is asked then
                await asyncio.wait({asking}, timeout=_DUE)
                if not asking.done():
                    await self._flush(client, round_)  # the line may be slow
                    await asyncio.wait({asking}, timeout=_DUE)
                if not asking.done():
                    raise ConnectionLost(f"no answer in {_DUE:g} s")
            sequence = stored_at(await asking)
        finally:
            asking.cancel()
        fault("stored")
        return sequence

    async def _flush(self, client: Client, round_: Round) -> None:
        """Return when the server has read all that was sent, however slow the line is."""
        patience = _patience(round_)
        await self._connection.guard(client.flush(int(patience)), patience, str(self._subject))

    async def _refused(self, error: Rejected, size: int) -> None:
        if error.is_wrong_sequence:
            raise SessionLost(
                f"{self._subject} does not end at sequence {self._last} any more ({error.description})"
            ) from None
        if error.is_write_under_way and self._tries < _MOST_TRIES:
            # nothing was stored, and it is over at once; was it this round, sent before, the next try is refused as stored
            self._tries += 1
            await asyncio.sleep(_NEXT_TRY * random.uniform(0.5, 1.5))
            return
        if error.error == _MESSAGE_TOO_LARGE:
            self._largest = size // 2
            raise SessionLost("the stream takes no message as large") from None
        await self._waiting.refused(error)


def _patience(round_: Round) -> float:
    """Return the seconds in which a round gets through a line that is still of use; a dead one is noticed by pings."""
    return _LEAST_PATIENCE + len(round_.payload) / _SLOWEST
