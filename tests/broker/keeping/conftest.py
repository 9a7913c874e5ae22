"""What the tests of the keeper of room share: a stream of two partitions, small limits, and hands to fill it with."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from broker.client import bucket
from broker.client.connection import Connection, Rejected
from broker.keeping.room import OnFull, Policy, RoomKeeper
from broker.topology import Topology
from broker.wire.message import Origin, Section, Span, encode_origin
from broker.wire.offset import Offset
from broker.wire.streams import OFFSETS_BUCKET, STREAM, offset_key
from tests.conftest import PARTITIONS, apply_topology

Answer = TypeVar("Answer")

LIMIT = 1_000_000
LINES = b"x" * 19_999 + b"\n"


@dataclass
class Stream:
    """A stream in an account of the test's own."""

    url: str
    folder: Path
    policy: Policy = field(default_factory=Policy)
    ends: dict[tuple[str, str], int] = field(default_factory=dict)

    def ask(self, question: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        async def connected() -> Answer:
            connection = Connection([self.url], "tests")
            try:
                await connection.once()
                return await question(connection)
            finally:
                await connection.close()

        return asyncio.run(connected())

    def publish(self, subject: str, file: str = "a", payload: bytes = LINES) -> int:
        """Store a message as a shipper makes it; return its sequence. Raises `Rejected` when there is no room."""
        return self.ask(lambda connection: self._store(connection, subject, file, payload))

    def fill(self, *subjects: str, most: int = 200) -> list[int]:
        """Store messages, one of each subject in turn, until the stream is full."""

        async def store(connection: Connection) -> list[int]:
            sequences: list[int] = []
            for number in range(most * len(subjects)):
                subject = subjects[number % len(subjects)]
                try:
                    sequences.append(await self._store(connection, subject, "a", LINES))
                except Rejected:
                    break
            return sequences

        return self.ask(store)

    async def _store(self, connection: Connection, subject: str, file: str, payload: bytes) -> int:
        start = self.ends.get((subject, file), 0)
        end = start + len(payload)
        section = Section(f"/var/log/{file}", Span(file, start, end), len(payload), 1)
        origin = Origin("1-00000001", 1, (section,))
        answer = await connection.ask(subject, payload, encode_origin(origin))
        self.ends[subject, file] = end
        return int(answer["seq"])

    def commit(self, partition: int, until: int, **changes: Any) -> None:
        """Write an offset as a receiver does that has everything below `until`."""

        async def write(connection: Connection) -> None:
            created = (await connection.api(f"STREAM.INFO.{STREAM}"))["created"]
            last = await connection.request(
                f"$JS.API.DIRECT.GET.{STREAM}", b'{"seq":%d}' % (until - 1)
            )
            moment = datetime.fromisoformat((last.headers or {})["Nats-Time-Stamp"])
            stored = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
            fields = {"stream_created": created, "last_time": stored, **changes}
            offset = Offset(until, 1, owner="test", **fields)
            await bucket.write(
                *(connection, OFFSETS_BUCKET, offset_key(partition), offset.encode()),
                entry.revision if entry else 0,
            )

        self.ask(write)

    def look(
        self, times: int = 1, later: int = 0, between: Callable[[], object] = lambda: None
    ) -> RoomKeeper:
        """Let a keeper that has just started look so many times, `later` nanoseconds from now, and return it."""

        def clock() -> int:
            return time.time_ns() + later

        async def look(connection: Connection) -> RoomKeeper:
            keeper = RoomKeeper(connection, self.folder, "one", lambda: self.policy, clock)
            for number in range(times):
                if number:
                    await asyncio.to_thread(between)
                await keeper.look()
            return keeper

        return self.ask(look)

    def info(self) -> dict[str, Any]:
        return self.ask(lambda connection: connection.api(f"STREAM.INFO.{STREAM}"))

    def sequences(self, subject: str = ">") -> list[int]:
        """Return what the stream holds of a subject."""

        async def list_(connection: Connection) -> list[int]:
            found: list[int] = []
            while True:
                begin = found[-1] + 1 if found else 1
                try:
                    answer = await connection.api(
                        f"STREAM.MSG.GET.{STREAM}", {"seq": begin, "next_by_subj": subject}
                    )
                except Rejected:
                    return found
                found.append(int(answer["message"]["seq"]))

        return self.ask(list_)


@pytest.fixture
def stream(fresh_url: str, tmp_path: Path) -> Stream:
    apply_topology(fresh_url, Topology(partitions=PARTITIONS, max_bytes=LIMIT))
    return Stream(fresh_url, tmp_path)


@pytest.fixture
def dropping(stream: Stream) -> Stream:
    stream.policy = Policy(OnFull.DROP_OLDEST)
    return stream
