"""What the stream holds of a host, read back from the broker and judged against the files that were shipped.

Compares as it reads, so a backlog of some GB needs no memory; only what differs is gathered whole, for the oracle.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

from broker.client.connection import Connection
from broker.wire.message import decode_origin, decode_payload
from broker.wire.streams import STREAM
from broker.wire.subjects import Subject
from tests.support.oracle import Verdict, judge


class Stored:
    """A file's bytes as they come out of the stream, held against the file itself."""

    def __init__(self, source: Path) -> None:
        """Begin at the file's first byte."""
        self._source = source
        self.size = 0
        self.lines = 0
        self.equal = True

    async def compare(self, parts: AsyncIterator[bytes]) -> None:
        """Take all that the stream holds of it, oldest first."""
        with closing(self._source.open("rb")) as file:
            async for part in parts:
                self.equal = self.equal and file.read(len(part)) == part
                self.size += len(part)
                self.lines += part.count(b"\n")
            self.equal = self.equal and not file.read(1)


async def judge_stored(url: str, host: str, partitions: int, sources: Sequence[Path]) -> Verdict:
    """Judge what the stream holds of `host` against its source files; one file alone is compared as it is read."""
    connection = Connection([url], "bench")
    subject = str(Subject.for_host(host, partitions))
    try:
        if len(sources) == 1:
            stored = Stored(sources[0])
            await stored.compare(stored_lines(connection, subject))
            if stored.equal:
                return Verdict(stored.lines, stored.lines)
        received = b"".join([part async for part in stored_lines(connection, subject)])
        return judge([source.read_bytes() for source in sources], received)
    finally:
        await connection.close()


async def stored_lines(connection: Connection, subject: str) -> AsyncIterator[bytes]:
    """Yield the lines of every message of a subject in the order of the stream, decompressed."""
    sequence = 1
    while True:
        body = json.dumps({"seq": sequence, "next_by_subj": subject}).encode()
        answer = await connection.call(f"DIRECT.GET.{STREAM}", body)
        headers = answer.headers or {}
        if "Status" in headers:
            return
        sequence = int(headers["Nats-Sequence"]) + 1
        origin = decode_origin(headers)
        if origin is None or origin.sections:
            yield decode_payload(headers, answer.data)
