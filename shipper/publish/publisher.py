"""Publishes rounds, one at a time and in order: stored once, whatever has to be retried.

A round names the subject's last sequence, so one that was stored before is refused. A refusal ends the session: only the
stream can say what became of the round. Never sends a round while another one is in flight.
"""

import asyncio
import logging
import random
import re
import sys

from broker.app.exits import ConfigurationError
from broker.app.faults import fault
from broker.client.answer import answer_of, stored_at
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.message import EXPECTED_SEQUENCE
from shipper.publish.acks import Acks, largest_payload, patience_for, send
from shipper.publish.claim import Ownership
from shipper.publish.pause import PauseWatch
from shipper.publish.rounds import Round
from shipper.publish.subject import HostSubject
from shipper.publish.waiting import Waiting

__all__ = ["Publisher", "SessionLost", "UnacknowledgedPublisher"]

_NEXT_TRY = 0.01  # seconds, while another write of the subject is under way
_MOST_TRIES = 300  # before that is logged, and longer waited for
_LAST = re.compile(r"wrong last sequence: (\d+)")
_MESSAGE_TOO_LARGE = 10054
_LEAST_PAYLOAD = 1024
logger = logging.getLogger(__name__)


class SessionLost(Exception):
    """The claim does not hold any more: claim again, rebuild the positions, and go back to them."""


class _RoundPublisher:
    """What both publishers do: nothing in a pause, and they give a round up where its subject is another, or it is too large by now."""

    def __init__(
        self,
        connection: Connection,
        host_subject: HostSubject,
        pause: PauseWatch,
        waiting: Waiting,
    ) -> None:
        self._connection = connection
        self._host_subject = host_subject
        self._pause = pause
        self._waiting = waiting
        self._largest = sys.maxsize

    async def largest(self) -> int:
        """Return how many bytes the broker takes at a time; raises `ConfigurationError` where that is too few for a round."""
        most = min(self._largest, await largest_payload(self._connection))
        if most < _LEAST_PAYLOAD:
            raise ConfigurationError(
                f"the broker takes {most} bytes at a time, too few for a round; raise its max_payload"
            )
        return most

    async def _until_open(self, round_: Round) -> None:
        """Return when a round may be sent; raises `SessionLost` where its subject is another by now, or it is too large."""
        await self._pause.until_over()
        if self._host_subject.has_changed:
            raise SessionLost("the number of partitions changed")
        if len(round_.payload) > (most := await self.largest()):
            raise SessionLost(f"the broker takes {most} bytes at a time now")


class Publisher(_RoundPublisher):
    """Publishes the rounds of an agent, for one session after the other."""

    def __init__(
        self,
        connection: Connection,
        host_subject: HostSubject,
        pause: PauseWatch,
        waiting: Waiting,
    ) -> None:
        """Own nothing yet."""
        super().__init__(connection, host_subject, pause, waiting)
        self._acks = Acks(connection)
        self._subject = ""
        self._last = 0
        self._tries = (
            0  # how often another write was under way since the last round that was stored
        )

    def begin(self, owned: Ownership) -> None:
        """Publish behind a claim from now on."""
        self._subject, self._last = str(owned.subject), owned.last

    async def publish(self, round_: Round) -> int:
        """Return the stream sequence of the round's message once it is on disk, however long that takes.

        Raises `SessionLost`, or `ConfigurationError` for a message that the broker will never take.
        """
        while True:
            await self._until_open(round_)
            try:
                self._last = await self._send(round_)
            except ConnectionLost as error:
                # it is stored or not; sent again with the same sequence it is stored once
                await self._waiting.pause(f"no acknowledgement from the broker: {error}")
            except Rejected as error:
                await self._refused(error, len(round_.payload))
            else:
                self._waiting.over()
                return self._last

    async def _send(self, round_: Round) -> int:
        headers = round_.headers | {EXPECTED_SEQUENCE: str(self._last)}
        answer = await self._acks.ask(self._subject, round_.payload, headers)
        sequence = stored_at(answer_of(answer))
        self._tries = 0
        fault("stored")
        return sequence

    async def _refused(self, error: Rejected, size: int) -> None:
        if error.is_wrong_sequence:
            raise SessionLost(self._reason(error)) from None
        if error.is_write_under_way and self._tries < _MOST_TRIES:
            # nothing was stored, and it is over at once; was it this round, sent before, the next try is refused as stored
            self._tries += 1
            await asyncio.sleep(_NEXT_TRY * random.uniform(0.5, 1.5))
            return
        if error.error == _MESSAGE_TOO_LARGE:
            if size <= _LEAST_PAYLOAD:
                raise ConfigurationError(
                    f"the stream refuses a message of {size} bytes: {error}; raise its max_msg_size"
                ) from None
            self._largest = size // 2
            raise SessionLost("the stream takes no message as large") from None
        await self._waiting.refused(error)

    def _reason(self, refusal: Rejected) -> str:
        """Return why the session is lost; warns of a stream of which the last messages are gone.

        By the word of the stream's leader: what answers a question may lag behind.
        """
        found = _LAST.search(refusal.description)
        if found is not None and 0 < int(found[1]) < self._last:
            logger.warning(
                "%s ends at sequence %s now, and ended at %d: the broker was set back to a backup, or lines were removed "
                "there; receivers name those that they miss",
                self._subject,
                found[1],
                self._last,
            )
        now = f", but at {found[1]}" if found else ""
        return f"{self._subject} does not end at sequence {self._last} any more{now}"


class UnacknowledgedPublisher(_RoundPublisher):
    """Hands rounds to the broker, and knows no more of them."""

    async def publish(self, round_: Round) -> int:
        """Return 0 once the broker has read the round; what was under way when a connection broke is sent again."""
        await self._waiting.until_answered(lambda: self._send(round_))
        return 0

    async def _send(self, round_: Round) -> None:
        await self._until_open(round_)
        client = await self._connection.client()
        subject = str(self._host_subject.subject)
        await send(self._connection, subject, round_.payload, "", round_.headers)
        patience = patience_for(len(round_.payload))
        await self._connection.guard(client.flush(int(patience)), patience, subject)
