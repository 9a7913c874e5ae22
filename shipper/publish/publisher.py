"""Publishes rounds, one at a time and in order: stored once, whatever has to be retried.

A round names the subject's last sequence, so one that was stored before is refused, and the stream then says what
happened. Never sends a round while another is in flight, never gives one up.
"""

import asyncio
import logging
import random
import re

from broker.app.exits import ConfigurationError
from broker.app.faults import fault
from broker.client.answer import answer_of, stored_at
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.message import EXPECTED_SEQUENCE
from broker.wire.streams import room_in
from shipper.publish.acks import Answers, patience_for, send
from shipper.publish.claim import Ownership, Registry, fenced_by, hold
from shipper.publish.rounds import Round, fitting
from shipper.publish.stored import Ruling, Stored, Verdict, judge
from shipper.publish.subject import HostSubject
from shipper.publish.waiting import Cause, Waiting
from shipper.settings import Compression

__all__ = ["Publisher", "UnacknowledgedPublisher"]

_LAG = 1.0  # seconds of silence that a refusal counts as which no answer explains
_LEAST_DUE = 1.5  # seconds for an answer by a server of several, once it has read a round; it grows as answers come late
_MOST_DUE = 30.0  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds, where another client writes between
_NEXT_TRY = 0.01  # seconds, while another write of the subject is under way
_MOST_TRIES = 300  # before it is said who that may be; each round that is stored makes up for one
_ACTUAL = re.compile(r"wrong last sequence: (\d+)")
_MESSAGE_TOO_LARGE = 10054
_LEAST_ROOM = 1024
logger = logging.getLogger(__name__)


class Publisher:
    """Publishes the rounds of the agent that owns a subject."""

    def __init__(
        self,
        connection: Connection,
        registry: Registry,
        ownership: Ownership,
        host_subject: HostSubject,
        waiting: Waiting,
        compression: Compression,
    ) -> None:
        """Begin behind the claim of the owner; `compression` is for rounds that must be divided."""
        self._connection = connection
        self._registry = registry
        self._agent = ownership.agent
        self._expected = ownership.claim
        self._known = ownership.positions.sequence
        self._is_disputed = False
        self._is_pending = (
            False  # a round was sent to the subject, and no answer says what became of it
        )
        self._host_subject = host_subject
        self._waiting = waiting
        self._answers = Answers(connection)
        self._compression = compression
        self._crossed = 0  # how often in a row another client's message came before the round
        self._is_stranger_named = False
        self._held_up = 0  # how often another write was under way
        self._is_naming_told = False
        self._largest: int | None = None
        self._due = _LEAST_DUE

    async def publish(self, round_: Round) -> int:
        """Return the stream sequence of the round's message, or of the last one if it had to be divided, once all is on disk.

        However long that takes; raises `FencedError`, `OwnershipLost`, or `ConfigurationError` for a message that the
        broker will never take.
        """
        left, sequence = [round_], 0
        while left:
            sequence = await self._insist(left)
        return sequence

    async def _insist(self, left: list[Round]) -> int:
        while True:
            try:
                sequence = await self._attempt(left)
            except ConnectionLost as error:
                await self._waiting.pause(f"no acknowledgement from the broker: {error}")
            except Rejected as error:
                if error.is_write_under_way:
                    await self._try_soon()
                    continue
                if error.error == _MESSAGE_TOO_LARGE:
                    self._shrink(len(left[0].payload), error)
                await self._waiting.refused(error)
            else:
                if sequence is not None:
                    self._waiting.over()
                    self._expected = sequence
                    # whoever stored lines on another subject would have claimed this one, too, and had this refused
                    self._known = max(self._known, sequence)
                    return sequence

    def _shrink(self, size: int, error: Rejected) -> None:
        if size <= _LEAST_ROOM:
            raise ConfigurationError(
                f"the stream refuses a message of {size} bytes: {error}; raise its max_msg_size"
            ) from None
        self._largest = size // 2

    async def _attempt(self, left: list[Round]) -> int | None:
        """Publish the first of what is left of a round, and take it away once it is stored."""
        left[:1] = fitting(left[0], await self._room(), self._compression)
        sequence = await self._store(left[0])
        if sequence is not None:
            del left[0]
        return sequence

    async def _room(self) -> int:
        room = room_in((await self._connection.client()).max_payload)
        if room < _LEAST_ROOM:
            raise ConfigurationError(
                f"the broker takes {room} bytes at a time, too few for a round; raise its max_payload"
            )
        return min(room, self._largest or room)

    async def _store(self, round_: Round) -> int | None:
        subject = self._host_subject.subject
        has_moved = str(subject) != self._registry.subject and not self._is_pending
        if self._is_disputed or has_moved:
            registry = self._registry.at(subject) if has_moved else self._registry
            return await self._claim(registry, round_)
        try:
            return await self._send(round_)
        except Rejected as error:
            # the write that is under way may be this round, sent before
            self._is_pending = error.is_write_under_way
            if not error.is_wrong_sequence:
                raise
            self._notice(error)
        return await self._settle(round_)

    async def _claim(self, registry: Registry, round_: Round) -> int | None:
        """Claim a subject, the own one again or another; return its sequence when the round was stored before, else None."""
        held = await hold(registry, self._agent, self._known, round_.origin)
        if registry.subject != self._registry.subject:
            logger.warning(
                "the number of partitions changed: lines go to %s from now on", registry.subject
            )
        self._registry = registry
        self._is_disputed, self._expected, self._known = False, held.last, held.last
        return held.last if held.ruling is Ruling.GO_ON else None

    async def _send(self, round_: Round) -> int:
        reply = await self._answers.expect()
        headers = round_.headers | {EXPECTED_SEQUENCE: str(self._expected)}
        subject, size = self._registry.subject, len(round_.payload)
        self._is_pending = True
        fault("sending")
        await send(self._connection, subject, round_.payload, reply, headers)
        fault("sent")
        due = self._due if self._connection.has_choice else None
        answer = await self._answers.wait(patience_for(size), subject, due)
        sequence = stored_at(answer_of(answer))
        self._crossed, self._is_pending = 0, False
        self._held_up = max(0, self._held_up - 1)
        fault("stored")
        self._due = max(_LEAST_DUE, 0.9 * self._due)
        return sequence

    async def _settle(self, round_: Round) -> int | None:
        """Return the sequence of a refused round that is stored after all, None when it is to be sent again."""
        await self._give_way()
        verdict = await self._inquire(round_)
        match verdict.ruling:
            case Ruling.GO_ON:
                self._due = min(2 * self._due, _MOST_DUE)  # its answer may only have been late
                return verdict.last
            case Ruling.AGAIN | Ruling.LOOK_BACK:
                if verdict.last == self._expected:
                    await self._wait_for_replica()
                self._expected = verdict.last
                return None
            case Ruling.RECLAIM | Ruling.LOST:
                logger.warning("late claim of agent %s; claiming again", verdict.rival)
                self._is_disputed = True  # until it is settled, however often the broker goes away
                return None
            case Ruling.FENCED:
                raise fenced_by(verdict.rival, self._registry.subject)

    async def _give_way(self) -> None:
        """Wait longer each time that another client's message came before the round, which is sent again whole.

        Before the last sequence is asked for: it would not be the last one any more behind a pause.
        """
        if self._crossed:
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(self._crossed - 1, 10))
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    def _name_stranger(self, newest: Stored) -> None:
        """Say once who else writes to the subject."""
        self._crossed += 1
        if self._is_stranger_named:
            return
        self._is_stranger_named = True
        who = f"client {newest.origin.agent!r}" if newest.origin else "a client without our headers"
        logger.warning(
            "%s wrote to %s, which is for this host's shipper only, at sequence %d: rounds are sent again for it; "
            "find that client, and give it a subject of its own or take its right to this one",
            who,
            newest.subject or self._registry.subject,
            newest.sequence,
        )

    async def _try_soon(self) -> None:
        """Wait a moment where another write of the subject is under way: nothing was stored, and it is over at once.

        If it is this round, sent before, the next try is refused as stored. Whoever only names the subject, in a
        header of a message to another one, must cost no more than that moment.
        """
        self._held_up += 1
        if self._held_up >= _MOST_TRIES and not self._is_naming_told:
            self._is_naming_told = True
            logger.warning(
                "the broker says time and again that another write of %s is under way: another client may be naming "
                "this subject in Nats-Expected-Last-Subject-Sequence-Subject; find that client, and stop it",
                self._registry.subject,
            )
        await asyncio.sleep(_NEXT_TRY * random.uniform(0.5, 1.5))

    async def _wait_for_replica(self) -> None:
        """Wait where the broker refuses what its own answer asks for: it lags, or its leader was cut off with the round in hand."""
        lags = ConnectionLost("the broker refuses what it asks for; it may lag behind")
        self._connection.judge(_LAG, lags)
        await self._waiting.pause(str(lags), Cause.LOST)

    def _notice(self, refusal: Rejected) -> None:
        """Take in that the last lines of the subject are gone: a broker was restored, or they were removed.

        By the word of the stream's leader: what answers a question may lag behind.
        """
        found = _ACTUAL.search(refusal.description)
        if found is None or not 0 < int(found[1]) < min(self._expected, self._known + 1):
            return
        logger.warning(
            "%s ends at sequence %s now, and ended at %d: the broker was set back to a backup, or lines were removed "
            "there; receivers name those that they miss",
            self._registry.subject,
            found[1],
            self._expected,
        )
        self._known = int(found[1])

    async def _inquire(self, round_: Round) -> Verdict:
        newest = await self._registry.newest()
        # of a subject whose messages have all expired only the host's other ones can tell who took over
        seen = [newest] if newest else await self._newer_elsewhere()
        verdict = judge(seen, round_.origin, complete=False)
        if verdict.ruling is not Ruling.LOOK_BACK:
            return verdict
        self._name_stranger(seen[-1])
        every: list[Stored] = []
        await self._registry.all.since(self._expected + 1, every.extend)
        own = [message for message in every if message.subject == self._registry.subject]
        return judge(own, round_.origin, complete=True)

    async def _newer_elsewhere(self) -> list[Stored]:
        heads = await self._registry.all.heads()
        return [head for head in heads if head.agent is not None and head.agent > self._agent]


class UnacknowledgedPublisher:
    """Hands rounds to the broker, and knows no more of them."""

    def __init__(
        self,
        connection: Connection,
        host_subject: HostSubject,
        waiting: Waiting,
        compression: Compression,
    ) -> None:
        """Remember where to publish."""
        self._compression = compression
        self._connection = connection
        self._host_subject = host_subject
        self._waiting = waiting

    async def publish(self, round_: Round) -> int:
        """Return 0 once the broker has read the round; what was under way when a connection broke is sent again."""
        while True:
            try:
                await self._send(round_)
            except ConnectionLost as error:
                await self._waiting.pause(f"the broker went away: {error}")
            except Rejected as error:
                await self._waiting.refused(error)
            else:
                self._waiting.over()
                return 0

    async def _send(self, round_: Round) -> None:
        client = await self._connection.client()
        subject = str(self._host_subject.subject)
        for part in fitting(round_, room_in(client.max_payload), self._compression):
            await send(self._connection, subject, part.payload, "", part.headers)
        patience = patience_for(len(round_.payload))
        await self._connection.guard(client.flush(int(patience)), patience, subject)
