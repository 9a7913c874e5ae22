"""Publishes rounds, one at a time and in order: stored once, whatever has to be retried.

The first message of a round names the subject's last sequence, so a round that was stored before is refused, and the
stream then says what happened. Never sends a round while another is in flight, never gives one up.
"""

from broker.answer import answer_of
from broker.connection import Connection, ConnectionLost, Rejected
from broker.exits import ConfigurationError, FencedError
from broker.topology import PAYLOAD_HEADROOM
from shipper.answers import Answers
from shipper.ownership import Ownership
from shipper.registry import Registry
from shipper.rounds import Round, outgoing, unacknowledged
from shipper.verdict import Ruling, Stored, Verdict, judge
from shipper.waiting import Cause, Waiting, cause_of, reason_of

__all__ = ["OwnershipLost", "Publisher", "UnacknowledgedPublisher"]

_PATIENCE = 30.0  # seconds; a round of some MiB over a slow line takes its time, a dead one is noticed by pings
_WRONG_LAST_SEQUENCE = {10071, 10164}
_MESSAGE_TOO_LARGE = 10054


class OwnershipLost(Exception):
    """An older agent's claim came late; this one must claim again and rebuild its positions."""


class Publisher:
    """Publishes the rounds of the agent that owns a subject."""

    def __init__(
        self, connection: Connection, registry: Registry, ownership: Ownership, waiting: Waiting
    ) -> None:
        """Begin behind the claim of the owner."""
        self._connection = connection
        self._registry = registry
        self._agent = ownership.agent
        self._expected = ownership.claim
        self._waiting = waiting
        self._answers = Answers(connection)
        self._attempts = 0

    async def publish(self, round_: Round) -> int:
        """Return the stream sequence of the round's last message, once the round is stored and on disk.

        However long that takes; raises `FencedError`, `OwnershipLost`, or `ConfigurationError` for a message that the
        broker will never take.
        """
        while True:
            try:
                sequence = await self._attempt(round_)
            except ConnectionLost as error:
                await self._waiting.pause(f"no acknowledgement from the broker: {error}")
            except Rejected as error:
                if error.error == _MESSAGE_TOO_LARGE:
                    raise ConfigurationError(
                        f"the stream refuses a block: {error}; lower --max-line"
                    ) from None
                await self._waiting.pause(reason_of(error), cause_of(error))
            else:
                if sequence is not None:
                    self._waiting.over()
                    self._expected = sequence
                    return sequence

    async def _attempt(self, round_: Round) -> int | None:
        try:
            return await self._send(round_)
        except Rejected as error:
            if error.error not in _WRONG_LAST_SEQUENCE:
                raise
        return await self._settle(round_)

    async def _send(self, round_: Round) -> int:
        reply = await self._answers.expect()
        await _check_size(self._connection, round_)
        self._attempts += 1
        batch = f"{self._agent}-{self._attempts}"
        for message in outgoing(round_, self._expected, batch):
            await self._connection.publish(
                self._registry.subject,
                message.payload,
                reply if message.answered else "",
                message.headers,
            )
        answer = answer_of(await self._answers.wait(_PATIENCE))
        return int(answer["seq"])

    async def _settle(self, round_: Round) -> int | None:
        """Return the sequence of a refused round that is stored after all, None when it is to be sent again."""
        verdict = await self._inquire(round_)
        match verdict.ruling:
            case Ruling.GO_ON:
                return verdict.last
            case Ruling.AGAIN | Ruling.LOOK_BACK:
                if verdict.last == self._expected:
                    await self._waiting.pause(
                        "the broker refuses what it asks for; it may lag behind", Cause.REFUSED
                    )
                self._expected = verdict.last
                return None
            case Ruling.RECLAIM:
                raise OwnershipLost(f"late claim of agent {verdict.rival}")
            case Ruling.FENCED:
                raise FencedError(
                    f"agent {verdict.rival} ships for the same host since then ({self._registry.subject}); "
                    "this one ends: run one shipper per host, or give each its own --host"
                )

    async def _inquire(self, round_: Round) -> Verdict:
        newest = await self._registry.newest()
        seen = [] if newest is None else [newest]
        verdict = judge(seen, round_.last, complete=False)
        if verdict.ruling is not Ruling.LOOK_BACK:
            return verdict
        every: list[Stored] = []
        await self._registry.read(self._expected + 1, every.extend)
        return judge(every, round_.last, complete=True)


class UnacknowledgedPublisher:
    """Publishes rounds that nobody waits for: handed to the broker, and no more is known of them."""

    def __init__(self, connection: Connection, subject: str, waiting: Waiting) -> None:
        """Remember where to publish."""
        self._connection = connection
        self._subject = subject
        self._waiting = waiting

    async def publish(self, round_: Round) -> int:
        """Return 0 once the broker has read the round; what was under way when a connection broke is sent again."""
        while True:
            try:
                await self._send(round_)
            except ConnectionLost as error:
                await self._waiting.pause(f"the broker went away: {error}")
                continue
            self._waiting.over()
            return 0

    async def _send(self, round_: Round) -> None:
        client = await self._connection.client()
        await _check_size(self._connection, round_)
        for message in unacknowledged(round_):
            await self._connection.publish(self._subject, message.payload, headers=message.headers)
        await self._connection.guard(client.flush(int(_PATIENCE)), _PATIENCE)


async def _check_size(connection: Connection, round_: Round) -> None:
    most = (await connection.client()).max_payload - PAYLOAD_HEADROOM
    largest = max(len(block.payload) for block in round_.blocks)
    if largest > most:
        raise ConfigurationError(
            f"the broker takes payloads of {most} bytes, a block has {largest}; lower --max-line"
        )
