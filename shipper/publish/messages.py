"""Reads a host's messages, from which its positions are rebuilt, and the snapshot of its positions.

The consumer that reads the messages has a fixed name, so that an agent's rights can be limited to
it. Two agents of one host take it from each other; an agent that missed messages then raises
`ConnectionLost`, and reads again.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from nats_logship.app.exits import FencedError
from nats_logship.app.faults import fault
from nats_logship.app.program import version_of
from nats_logship.app.text import format_count
from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.bucket import Conflict
from nats_logship.client.connection import Connection
from nats_logship.client.find import find_last
from nats_logship.client.payload import get_max_payload
from nats_logship.client.stream_reader import (
    LAST_PER_SUBJECT,
    Start,
    StreamReader,
    at_sequence,
)
from nats_logship.wire.message import MalformedMessage, Origin, decode_origin
from nats_logship.wire.positions import Covered, Positions, UnreadablePositions
from nats_logship.wire.streams import (
    POSITIONS_BUCKET,
    positions_key,
    stream_names,
    stream_of,
)
from nats_logship.wire.subjects import Subject, host_filter, shipper_consumer

_PAGE = 2000  # messages
_LIVES = 30  # seconds for which the broker keeps the consumer without a pull
_FORM = re.compile(r"([0-9]{13})-[0-9a-f]{8}")
_LATER = "the next start reads more headers of the stream"
logger = logging.getLogger(__name__)


def format_agent_id(start: int, tag: str) -> str:
    """Return the id of a run that started at `start`, in milliseconds since the epoch.

    Ids sort by age. `tag`, eight hex digits, distinguishes runs of the same start.
    """
    return f"{start:013}-{tag}"


def parse_agent_start(agent: str) -> int | None:
    """Return when a run started, in milliseconds since the epoch; None for no id of ours."""
    found = _FORM.fullmatch(agent)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class HostMessage:
    """A stored message of the host; `origin` is None if another client wrote it."""

    sequence: int
    origin: Origin | None
    subject: str
    stream: str

    @property
    def writer(self) -> str:
        """The id of the agent that wrote the message; empty for any other client."""
        return self.origin.agent if self.origin else ""


def fenced_error(rival: str) -> FencedError:
    """Return the error of an agent whose host another agent has taken over."""
    return FencedError(
        f"agent {rival} ships for the same host and started later, so this agent ends: run one "
        "shipper per host, or give each its own --host"
    )


def _newest_agent(positions: Positions) -> str:
    """Return the newest agent whose messages the positions cover, empty if there is none."""
    agents = (one.agent for one in positions.covered.values())
    return max((agent for agent in agents if parse_agent_start(agent) is not None), default="")


@dataclass(slots=True)
class Rebuilt:
    """Positions rebuilt from the stream, and who wrote the messages behind the known positions.

    `last` is the last sequence of each subject; `writers` has the last message of each writer.
    """

    positions: Positions
    last: dict[str, int] = field(default_factory=dict)
    writers: dict[str, HostMessage] = field(default_factory=dict)

    def add(self, page: Sequence[HostMessage]) -> None:
        """Advance the positions over the next messages of a stream."""
        ours = [(one.origin, one) for one in page if one.origin is not None]
        if ours:
            last = ours[-1][1]
            origins = [origin for origin, _ in ours]
            self.positions = self.positions.advance(origins, last.sequence, last.stream)
        for message in page:
            self.last[message.subject] = message.sequence
            self.writers[message.writer] = message


class HostMessages:
    """The messages of one host on all its subjects, for any number of partitions.

    The partitions are in `streams` streams. All methods raise `ConnectionLost` and `Rejected`.
    """

    def __init__(self, connection: Connection, host: str, streams: int) -> None:
        self.streams = streams
        self._connection = connection
        self._filter = host_filter(host)
        self._consumer = shipper_consumer(host)

    def stream_of(self, subject: Subject) -> str:
        """Return the stream that a subject is in."""
        return stream_of(subject.partition, self.streams)

    async def find_last(self, stream: str, subjects: str) -> HostMessage | None:
        """Return the last message of a subject or a filter; None if the stream has none."""
        if (found := await find_last(self._connection, stream, subjects)) is None:
            return None
        return HostMessage(
            sequence=found.sequence,
            origin=_origin_of(found.headers),
            subject=found.subject,
            stream=stream,
        )

    def read_since(self, first: int, stream: str) -> AsyncIterator[list[HostMessage]]:
        """Yield the messages of a stream from sequence `first` on, in pages.

        The pages are complete only if the iteration ends without an error.
        """
        return self._read(stream, at_sequence(first))

    async def read_last(self) -> list[HostMessage]:
        """Return the last message of each subject, in all streams."""
        names = stream_names(self.streams)
        last = await asyncio.gather(*(self.find_last(name, self._filter) for name in names))
        return [
            head
            for one in last
            if one is not None
            async for page in self._read(one.stream, LAST_PER_SUBJECT)
            for head in page
        ]

    async def rebuild(self, known: Positions, ends: Mapping[str, int]) -> Rebuilt:
        """Return the positions as these streams have them, each read at least up to its end.

        `known` are the positions of a snapshot.
        """
        rebuilt = Rebuilt(known)
        for stream, end in ends.items():
            covered = known.covered.get(stream)
            if covered is None or await self._replay(rebuilt, stream, covered.sequence) != covered:
                # nothing is covered, or the stream has lost the last covered message
                await self._replay(rebuilt, stream, 1)
            read = rebuilt.positions.covered.get(stream, Covered(0, ""))
            if read.sequence < end:
                raise ConnectionLost(f"stream {stream} did not return all messages of the host")
        return rebuilt

    async def _replay(self, rebuilt: Rebuilt, stream: str, first: int) -> Covered | None:
        """Add the messages from `first` on, and return what positions up to the first one cover."""
        found: Covered | None = None
        async for page in self.read_since(first, stream):
            if page and found is None:
                found = Covered(page[0].sequence, page[0].writer)
            rebuilt.add(page)
        return found

    async def _read(self, stream: str, start: Start) -> AsyncIterator[list[HostMessage]]:
        reader = StreamReader(
            self._connection,
            stream,
            self._consumer,
            (self._filter,),
            headers_only=True,
            lives=_LIVES,
        )
        await reader.replace(start)
        is_last = False
        while not is_last:
            messages = (await reader.pull(_PAGE)).messages
            reader.verify(messages)
            is_last = len(messages) < _PAGE
            yield [
                HostMessage(
                    sequence=delivery.sequence,
                    origin=_origin_of(message.headers),
                    subject=message.subject,
                    stream=stream,
                )
                for delivery, message in messages
            ]
        await reader.require_alone()
        await reader.delete()


def _origin_of(headers: Mapping[str, str] | None) -> Origin | None:
    """Return the origin of a message; None for a message of another client."""
    try:
        return decode_origin(headers)
    except MalformedMessage:
        return None


class Snapshots:
    """The snapshot of one host's positions, which one agent reads and writes by compare-and-set.

    With a snapshot only the headers of later messages are read at a start. It also holds values
    that no header has. Methods raise as those of `HostMessages`.
    """

    def __init__(self, connection: Connection, host: str) -> None:
        self._connection = connection
        self._key = positions_key(host)
        self.time = ""  # of the snapshot that was read, RFC 3339; empty without a snapshot
        self._revision = 0
        self._written: Positions | None = None
        self.found = Positions()  # written meanwhile by retention or an older agent
        self._writing = asyncio.Lock()

    async def read(self) -> Positions:
        """Return the positions of the snapshot, empty ones without a readable snapshot."""
        entry = await bucket.read(self._connection, POSITIONS_BUCKET, self._key)
        self._written, self.found = None, Positions()
        self._revision, self.time = (entry.revision, entry.time) if entry else (0, "")
        try:
            return Positions.decode(entry.value) if entry else Positions()
        except UnreadablePositions as error:
            name = f"{POSITIONS_BUCKET}/{self._key}"
            logger.warning(
                "the snapshot %s cannot be read: %s; reading all headers of the host", name, error
            )
            return Positions()

    async def write(self, positions: Positions) -> None:
        """Write the positions, unless they were written last.

        Raises `FencedError` if a newer agent has written the snapshot.
        """
        async with self._writing:
            while positions is not self._written:
                try:
                    await self._write(positions)
                except Conflict:
                    # written by an older agent, or by this one without an answer, or completed by
                    # retention with a round whose acknowledgement was lost. `found` is merged until
                    # the next claim, since the message of that round may be purged.
                    self.found = await self.read()
                    own, rival = _newest_agent(positions), _newest_agent(self.found)
                    if own and rival > own:
                        raise fenced_error(rival) from None

    async def confirm(self, agent: str) -> None:
        """Raise `FencedError` if an agent newer than `agent` has written the snapshot.

        Changes nothing; logs nothing if the broker does not answer.
        """
        with suppress(ConnectionLost, Rejected, UnreadablePositions):
            entry = await bucket.read(self._connection, POSITIONS_BUCKET, self._key)
            rival = _newest_agent(Positions.decode(entry.value)) if entry else ""
            if rival > agent:
                raise fenced_error(rival)

    async def try_write(self, positions: Positions) -> None:
        """Write the positions; log a failure, which only makes the next start slower.

        Raises `FencedError`.
        """
        try:
            await self.write(positions)
        except (ConnectionLost, Rejected) as error:
            logger.warning("cannot write the snapshot of the positions: %s; %s", error, _LATER)

    async def write_last(self, positions: Positions) -> None:
        """Write the positions at a stop; a broker that is going too is no trouble.

        Raises `FencedError`.
        """
        with suppress(ConnectionLost):
            try:
                await self.write(positions)
            except Rejected as error:
                if not error.is_leaderless:
                    logger.info("the positions are not saved: %s; %s", error, _LATER)

    async def _write(self, positions: Positions) -> None:
        version = version_of("nats-logship")
        value = replace(positions.merge(self.found), version=version).encode()
        if len(value) > await get_max_payload(self._connection):
            reason = (
                f"the snapshot of {format_count(len(positions.files), 'file')} has {len(value)} "
                "bytes, more than the broker accepts; ship fewer files under this host name"
            )
            raise Rejected(413, 0, reason)
        fault("snapshot_sending")
        self._revision = await bucket.write(
            self._connection, POSITIONS_BUCKET, self._key, value, self._revision
        )
        self._written = positions
        fault("snapshot_written")
