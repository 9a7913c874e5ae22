"""The own subject of an agent as the stream has it: its newest message, the claim on it, and what may be read back.

Reads headers only and writes claims only; lines are the publisher's. Every API subject names the own host, so that
an agent's rights can end there (research on least rights: filter in the subject of CONSUMER.CREATE).
"""

from broker.client.answer import stored_at
from broker.client.connection import Connection
from broker.wire.message import EXPECTED_SEQUENCE, Origin, encode_origin
from broker.wire.streams import STREAM
from broker.wire.subjects import Subject
from shipper.publishing.agent_id import AgentId
from shipper.publishing.readback import ReadBack, origin_of
from shipper.publishing.verdict import Stored

__all__ = ["Registry"]

_NO_MESSAGE = "404"


class Registry:
    """What the stream holds of one host, seen from the subject that its lines go to."""

    def __init__(self, connection: Connection, subject: Subject) -> None:
        """Remember the subject."""
        self._connection = connection
        self._subject = subject
        self.all = ReadBack(connection, subject.host)

    @property
    def subject(self) -> str:
        """The subject that this host's lines are published on."""
        return str(self._subject)

    def at(self, subject: Subject) -> "Registry":
        """Return the registry of another subject of the host."""
        return Registry(self._connection, subject)

    async def newest(self) -> Stored | None:
        """Return the last message of the subject, None when there is none (any more).

        Raises `Rejected` when there is no such stream, `ConnectionLost`.
        """
        answer = await self._connection.call(f"DIRECT.GET.{STREAM}.{self.subject}")
        headers = answer.headers or {}
        if "Nats-Sequence" not in headers and headers.get("Status") == _NO_MESSAGE:
            return None
        return Stored(int(headers["Nats-Sequence"]), origin_of(answer), self.subject)

    async def claim(self, agent: AgentId, now: int, expected: int | None = None) -> int:
        """Take the subject: store an empty message, after which no older agent can publish; return its sequence.

        `now` in nanoseconds; refused if the subject's last sequence is not `expected`, where that is given. After
        `ConnectionLost` it may be stored or not; a second claim does no harm.
        """
        headers = encode_origin(Origin(str(agent), now))
        if expected is not None:
            headers[EXPECTED_SEQUENCE] = str(expected)
        return stored_at(await self._connection.ask(self.subject, b"", headers))
