"""What the broker has of one host: its messages, from which its positions are rebuilt, and the snapshot of them.

The consumer that reads back has a fixed name, so that an agent's rights can be limited to it: two agents of one host take
it from each other. Whoever did not get every message that the consumer gave out notices at the end, and reads again.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from nats_logship.app.exits import FencedError
from nats_logship.app.faults import fault
from nats_logship.app.program import version_of
from nats_logship.app.text import format_count
from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.bucket import Conflict
from nats_logship.client.connection import Connection
from nats_logship.client.error_codes import ErrorCode
from nats_logship.client.pulling import pull
from nats_logship.wire.message import MalformedMessage, Origin, decode_origin
from nats_logship.wire.positions import Covered, Positions, UnreadablePositions
from nats_logship.wire.streams import (
    PAYLOAD_HEADROOM,
    POSITIONS_BUCKET,
    positions_key,
    stream_names,
    stream_of,
)
from nats_logship.wire.subjects import Subject, host_filter, registry_consumer

_PAGE = 2000  # messages
_PATIENCE = 8.0  # seconds: the server of the consumer may have died
_SHORT = 1.0  # seconds for what may never be answered
_NO_MESSAGE = "404"
_EXISTS = {ErrorCode.CONSUMER_NAME_EXIST, ErrorCode.CONSUMER_ALREADY_EXISTS}  # or is about to go
_FORM = re.compile(r"([0-9]{13})-[0-9a-f]{8}")
logger = logging.getLogger(__name__)


def format_agent_id(start: int, tag: str) -> str:
    """Return the id of a run that started then, in milliseconds since the epoch; eight hex digits settle a tie: ids sort by age."""
    return f"{start:013}-{tag}"


def parse_agent_start(agent: str) -> int | None:
    """Return when a run started; None for what no shipper of ours wrote."""
    found = _FORM.fullmatch(agent)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class HostMessage:
    """A message of the host as the stream has it; `origin` is None where another client wrote it."""

    sequence: int
    origin: Origin | None
    subject: str
    stream: str

    @property
    def writer(self) -> str:
        """The id of the agent that wrote it; empty for any other client."""
        return self.origin.agent if self.origin else ""


def fenced_error(rival: str) -> FencedError:
    """Return the error of an agent that another one has taken over from."""
    return FencedError(
        f"agent {rival} ships for the same host since then; "
        "this one ends: run one shipper per host, or give each its own --host"
    )


def newest_in(positions: Positions) -> str:
    """Return the newest agent whose messages the positions cover, if there is one."""
    agents = (one.agent for one in positions.covered.values())
    return max((agent for agent in agents if parse_agent_start(agent) is not None), default="")


@dataclass(slots=True)
class Rebuilt:
    """Positions as the stream has them, and who wrote to the host's subjects behind those that were known.

    `last` is the last sequence of each subject; `writers` are the last message of each writer, by its name.
    """

    positions: Positions
    last: dict[str, int] = field(default_factory=dict)
    writers: dict[str, HostMessage] = field(default_factory=dict)

    def take(self, page: Sequence[HostMessage]) -> None:
        """Go on behind messages that follow those that were taken of their stream."""
        ours = [(one.origin, one) for one in page if one.origin is not None]
        if ours:
            last = ours[-1][1]
            origins = [origin for origin, _ in ours]
            self.positions = self.positions.advance(origins, last.sequence, last.stream)
        for message in page:
            self.last[message.subject] = message.sequence
            self.writers[message.writer] = message


class HostMessages:
    """The messages of one host on all its subjects, whatever the number of partitions was when they were stored.

    `streams` is how many partitions are spread over. All methods raise `ConnectionLost` and `Rejected`.
    """

    def __init__(self, connection: Connection, host: str, streams: int) -> None:
        self.streams = streams
        self._connection = connection
        self._filter = host_filter(host)
        self._consumer = registry_consumer(host)

    def stream_of(self, subject: Subject) -> str:
        """Return the stream that a subject is in."""
        return stream_of(subject.partition, self.streams)

    async def find_last(self, stream: str, subjects: str) -> HostMessage | None:
        """Return the last message of a subject, or of subjects; None when there is none (any more)."""
        answer = await self._connection.request(f"$JS.API.DIRECT.GET.{stream}.{subjects}")
        headers = answer.headers or {}
        if "Nats-Sequence" not in headers and headers.get("Status") == _NO_MESSAGE:
            return None
        subject = headers.get("Nats-Subject", subjects)
        return HostMessage(int(headers["Nats-Sequence"]), _origin_of(headers), subject, stream)

    def read_since(self, first: int, stream: str) -> AsyncIterator[list[HostMessage]]:
        """Yield a stream's messages from sequence `first` on in pages, which count only if nothing is raised."""
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, first)}
        return self._read(stream, start)

    async def read_last(self) -> list[HostMessage]:
        """Return the last message of each subject, in whatever stream it is."""
        names = stream_names(self.streams)
        last = await asyncio.gather(*(self.find_last(name, self._filter) for name in names))
        return [
            head
            for one in last
            if one is not None
            async for page in self._read(one.stream, {"deliver_policy": "last_per_subject"})
            for head in page
        ]

    async def rebuild(self, known: Positions, ends: Mapping[str, int]) -> Rebuilt:
        """Return the positions as these streams have them by now, each at least up to its end; `known` are those of a snapshot."""
        rebuilt = Rebuilt(known)
        for stream, end in ends.items():
            covered = known.covered.get(stream)
            if covered is None or await self._replay(rebuilt, stream, covered.sequence) != covered:
                # nothing is covered, or the stream has lost the last message that is
                await self._replay(rebuilt, stream, 1)
            read = rebuilt.positions.covered.get(stream, Covered(0, ""))
            if read.sequence < end:
                raise ConnectionLost(f"stream {stream} did not give back all of the own lines")
        return rebuilt

    async def _replay(self, rebuilt: Rebuilt, stream: str, first: int) -> Covered | None:
        """Take what a stream has from `first` on, and return what positions cover that end with its first message."""
        found: Covered | None = None
        async for page in self.read_since(first, stream):
            if page and found is None:
                found = Covered(page[0].sequence, page[0].writer)
            rebuilt.take(page)
        return found

    async def _read(
        self, stream: str, start: Mapping[str, Any]
    ) -> AsyncIterator[list[HostMessage]]:
        config = {
            "name": self._consumer,
            "description": secrets.token_hex(8),  # tells it from another agent's
            "ack_policy": "none",
            "filter_subject": self._filter,
            "headers_only": True,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 30_000_000_000,
            **start,
        }
        try:  # mostly there is none, and a way to the broker and back is saved
            made = (await self._create(stream, config))["created"]
        except Rejected as error:
            if error.error not in _EXISTS:
                raise
            await self._remove(stream)
            made = (await self._create(stream, config))["created"]
        count, is_last = 0, False
        while not is_last:
            pulled = await pull(self._connection, f"{stream}.{self._consumer}", _PAGE)
            page = [
                HostMessage(delivery.sequence, _origin_of(message.headers), message.subject, stream)
                for delivery, message in pulled.messages
            ]
            count, is_last = count + len(page), len(page) < _PAGE
            yield page
        # made anew with the same configuration, a consumer answers how it stands; another's is refused
        now = await self._create(stream, config)
        if now["created"] != made or now["delivered"]["consumer_seq"] != count:
            raise ConnectionLost("another agent of this host reads its lines back, too")
        await self._remove(stream)

    async def _create(self, stream: str, config: Mapping[str, Any]) -> dict[str, Any]:
        return await self._connection.api(
            f"CONSUMER.CREATE.{stream}.{self._consumer}.{self._filter}",
            {"stream_name": stream, "config": config, "action": "create"},
            patience=_PATIENCE,
        )

    async def _remove(self, stream: str) -> None:
        # who would answer for it may have died with its server; it ends by itself when nobody pulls
        with suppress(Rejected, ConnectionLost):
            removal = f"CONSUMER.DELETE.{stream}.{self._consumer}"
            await self._connection.api(removal, patience=_SHORT)


def _origin_of(headers: Mapping[str, str] | None) -> Origin | None:
    """Return where a message came from; None for what no agent of ours wrote, which says nothing about positions."""
    try:
        return decode_origin(headers)
    except MalformedMessage:
        return None


async def get_max_payload(connection: Connection) -> int:
    """Return how many bytes the broker takes at a time, beside our headers; waits for a live client."""
    most = (await connection.client()).max_payload
    return most - min(PAYLOAD_HEADROOM, most // 2)


class Snapshots:
    """The snapshot of one host's positions, as one agent reads and writes it by compare-and-set.

    It holds what headers of the stream need not be read for again, and what they cannot tell. Raises as `HostMessages` does.
    """

    def __init__(self, connection: Connection, host: str) -> None:
        self._connection = connection
        self._key = positions_key(host)
        self.time = ""  # of the one that was read, RFC 3339; empty where there is none
        self._revision = 0
        self._written: Positions | None = None
        self.found = Positions()  # what was written meanwhile, by retention or an older agent
        self._writing = asyncio.Lock()

    async def read(self) -> Positions:
        """Return the positions of the snapshot; none where there is no snapshot, or where it cannot be read, which is logged."""
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
        """Write the positions, unless they are those last written; raises `FencedError` where a newer agent wrote before."""
        async with self._writing:
            while positions is not self._written:
                try:
                    await self._write(positions)
                except Conflict:
                    # an older agent's came late, our own was not heard of, or retention has completed it with a round whose
                    # acknowledgement was lost: that counts until the next claim, as the message may be purged
                    self.found = await self.read()
                    own, rival = newest_in(positions), newest_in(self.found)
                    if own and rival > own:
                        raise fenced_error(rival) from None

    async def try_write(self, positions: Positions) -> None:
        """Write the positions if the broker takes them: without, a start takes longer. Raises `FencedError`."""
        try:
            await self.write(positions)
        except (ConnectionLost, Rejected) as error:
            later = "a restart reads them back from the stream"
            logger.warning("cannot write the snapshot of the positions: %s; %s", error, later)

    async def _write(self, positions: Positions) -> None:
        version = version_of("nats-logship")
        value = replace(positions.merge(self.found), version=version).encode()
        if len(value) > await get_max_payload(self._connection):
            reason = (
                f"the snapshot of {format_count(len(positions.files), 'file')} has {len(value)} bytes, which is larger than the broker takes; "
                "raise its max_payload, or ship fewer files"
            )
            raise Rejected(413, 0, reason)
        fault("snapshot_sending")
        self._revision = await bucket.write(
            self._connection, POSITIONS_BUCKET, self._key, value, self._revision
        )
        self._written = positions
        fault("snapshot_written")
