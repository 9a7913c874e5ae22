"""Publishes rounds, one at a time and in order: stored once, whatever has to be retried.

The first message of a round names the subject's last sequence, so a round that was stored before is refused, and the
stream then says what happened. Never sends a round while another is in flight, never gives one up.
"""

import asyncio
import logging
import random
import re
from collections.abc import Awaitable, Callable

from broker.connecting.answer import answer_of, stored_at
from broker.connecting.connection import Connection, ConnectionLost, Rejected
from broker.exits import ConfigurationError
from broker.faults import fault
from broker.topology import room_in
from shipper.publishing.answers import Answers
from shipper.publishing.fitting import fit
from shipper.publishing.handover import hand_over, patience_for
from shipper.publishing.heading import Heading
from shipper.publishing.ownership import Ownership, fenced_by, hold
from shipper.publishing.registry import WRONG_LAST_SEQUENCE, Registry
from shipper.publishing.rounds import MAX_BLOCKS, Round, outgoing
from shipper.publishing.verdict import Ruling, Stored, Verdict, judge
from shipper.publishing.waiting import Cause, Waiting

__all__ = ["Publisher"]

_LAG = 1.0  # seconds of silence that a refusal counts as which no answer explains
_LEAST_DUE = 1.5  # seconds for an answer by a server of several, once it has read a round; it grows as answers come late
_MOST_DUE = 30.0  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds, where another client writes between
_ACTUAL = re.compile(r"wrong last sequence: (\d+)")
_MESSAGE_TOO_LARGE = 10054
_LEAST_ROOM = 1024
_MOST_PIECES = 2 * MAX_BLOCKS  # what servers take in a batch unless they are told otherwise
logger = logging.getLogger(__name__)


class Publisher:
    """Publishes the rounds of the agent that owns a subject."""

    def __init__(
        self,
        connection: Connection,
        registry: Registry,
        ownership: Ownership,
        heading: Heading,
        waiting: Waiting,
    ) -> None:
        """Begin behind the claim of the owner."""
        self._connection = connection
        self._registry = registry
        self._agent = ownership.agent
        self._expected = ownership.claim
        self._known = ownership.positions.sequence
        self._is_disputed = False
        self._heading = heading
        self._waiting = waiting
        self._answers = Answers(connection)
        self._attempts = 0
        self._crossed = 0  # how often in a row another client's message came before the round
        self._is_stranger_named = False
        self._largest: int | None = None
        self._due = _LEAST_DUE

    async def publish(self, round_: Round) -> int:
        """Return the stream sequence of the round's last message, once the round is stored and on disk.

        However long that takes; raises `FencedError`, `OwnershipLost`, or `ConfigurationError` for a message that the
        broker will never take.
        """
        # all that went to the old subject is acknowledged by now, so what follows may go to the new one
        await self._insist(self._steer, round_)
        return await self._insist(self._attempt, round_)

    async def _insist(self, do: Callable[[Round], Awaitable[int | None]], round_: Round) -> int:
        while True:
            try:
                sequence = await do(round_)
            except ConnectionLost as error:
                await self._waiting.pause(f"no acknowledgement from the broker: {error}")
            except Rejected as error:
                if error.error == _MESSAGE_TOO_LARGE:
                    self._shrink(round_, error)
                await self._waiting.refused(error)
            else:
                if sequence is not None:
                    self._waiting.over()
                    self._expected = sequence
                    # whoever stored lines on another subject would have claimed this one, too, and had this refused
                    self._known = max(self._known, sequence)
                    return sequence

    async def _steer(self, round_: Round) -> int:
        """Go over to the subject that the host has by now, if it is another, and return what is its last sequence."""
        subject = await self._heading.subject()
        if str(subject) == self._registry.subject:
            return self._expected
        registry = self._registry.at(subject)
        held = await hold(registry, self._agent, self._known, round_.last, round_.last.read_at)
        logger.warning("the number of partitions changed: lines go to %s from now on", subject)
        self._registry = registry
        return held.last

    def _shrink(self, round_: Round, error: Rejected) -> None:
        largest = self._largest or max(len(block.payload) for block in round_.blocks)
        if largest <= _LEAST_ROOM:
            raise ConfigurationError(
                f"the stream refuses a block of {largest} bytes: {error}; raise its max_msg_size"
            ) from None
        self._largest = largest // 2

    async def _attempt(self, round_: Round) -> int | None:
        if self._is_disputed:
            return await self._resume(round_)
        try:
            return await self._send(round_)
        except Rejected as error:
            if error.error not in WRONG_LAST_SEQUENCE:
                raise
            self._notice(error)
        return await self._settle(round_)

    async def _resume(self, round_: Round) -> int | None:
        """Claim the subject again; return its sequence when the round was stored before, None when it is to be sent."""
        held = await hold(
            self._registry, self._agent, self._known, round_.last, round_.last.read_at
        )
        self._is_disputed, self._expected, self._known = False, held.last, held.last
        return held.last if held.ruling is Ruling.GO_ON else None

    async def _send(self, round_: Round) -> int:
        reply = await self._answers.expect()
        fitted = await self._fit(round_)
        self._attempts += 1
        batch = f"{self._agent}-{self._attempts}"
        messages = outgoing(fitted, self._expected, batch)
        subject, answers = self._registry.subject, self._answers
        patience = patience_for(fitted.size)
        fault("sending")
        await hand_over(
            self._connection, subject, messages, reply, patience, lambda: answers.is_there
        )
        fault("sent")
        due = self._due if self._connection.has_choice else None
        sequence = stored_at(answer_of(await answers.wait(patience, subject, due)))
        self._crossed = 0
        fault("stored")
        self._due = max(_LEAST_DUE, 0.9 * self._due)
        return sequence

    async def _fit(self, round_: Round) -> Round:
        room = room_in((await self._connection.client()).max_payload)
        blocks = fit(round_.blocks, min(room, self._largest or room))
        if len(blocks) > max(_MOST_PIECES, len(round_.blocks)):
            raise ConfigurationError(
                f"the broker takes {room} bytes at a time, too few for a round; lower --round-size"
            )
        return Round(blocks)

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
        verdict = judge(seen, round_.last, complete=False)
        if verdict.ruling is not Ruling.LOOK_BACK:
            return verdict
        self._name_stranger(seen[-1])
        every: list[Stored] = []
        await self._registry.all.since(self._expected + 1, every.extend)
        own = [message for message in every if message.subject == self._registry.subject]
        return judge(own, round_.last, complete=True)

    async def _newer_elsewhere(self) -> list[Stored]:
        heads = await self._registry.all.heads()
        return [head for head in heads if head.agent is not None and head.agent > self._agent]
