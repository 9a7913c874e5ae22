"""Fixtures of the shipper's tests: agents, the stream read back, a connection that can be cut."""

import asyncio
import itertools
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nats_logship.client.connection import Connection
from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.message import Origin, decode_origin, decode_payload, split_sections
from receiver.consume.judging import judge
from shipper.sources.block import Block
from shipper.status import live
from shipper.status.report import HostReport
from tests.shipper.logs import ROOT, Ship
from tests.support.oracle import judge as judge_lines
from tests.support.processes import Process, Processes, wait_until
from tests.support.suite import ask

NOBODY = 65534  # a user


@dataclass(frozen=True)
class Read:
    sequence: int
    origin: Origin | None
    lines: bytes

    @property
    def blocks(self) -> list[Block]:
        """Its lines, a block for each section."""
        if self.origin is None:
            return []
        read_at = self.origin.read_at
        return [
            Block(section, part, read_at)
            for section, part in split_sections(self.origin, self.lines)
        ]


@contextmanager
def as_user(number: int) -> Iterator[None]:
    """Be another user meanwhile, if this is root; late imports may fail."""
    if os.getuid() == 0:
        os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(os.getuid())


@pytest.fixture
def ship(processes: Processes) -> Ship:
    """Return a function that starts an agent, with its standard input redirected."""
    numbers = itertools.count()

    def start(
        url: str,
        *options: object,
        host: str = "web01",
        environment: Mapping[str, str] | None = None,
        redirection: str = "",
    ) -> Process:
        own = ["--server", url, "--host", host]
        command = [sys.executable, "-m", "shipper", *own, *map(str, options)]
        if redirection:
            command = ["sh", "-c", f"exec {shlex.join(command)} {redirection}"]
        name = f"shipper-{next(numbers)}"
        return processes.start(name, command, environment=environment, folder=ROOT)

    return start


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log of one line."""
    log = tmp_path / "a.log"
    log.write_bytes(b"one\n")
    return log


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Return a pipe with a name."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.fixture
def ship_input(ship: Ship, tmp_path: Path) -> Ship:
    """Return a function that starts the agent of web01, which ships its standard input."""
    own = ("--file", "-", "--state-dir", tmp_path / "state")
    return lambda url, redirection, *more: ship(url, *own, *more, redirection=redirection)


@pytest.fixture
def own_host(tmp_path: Path) -> str:
    """Return a host name of this test alone: other tests ask agents on this machine, too."""
    return f"{tmp_path.name[-40:].replace('_', '-')}-{os.getpid()}"


async def read_stream(
    connection: Connection, first: int = 1, subject: object = "logs.>"
) -> list[Read]:
    """Return every message of the stream, or of a subject, from sequence `first` on."""
    answers: asyncio.Queue[RawMessage] = asyncio.Queue()
    body = json.dumps({"seq": first, "next_by_subj": str(subject), "batch": 100_000}).encode()
    found: list[Read] = []
    async with connection.open_inbox(answers.put_nowait) as inbox:
        await connection.publish("$JS.API.DIRECT.GET.LOGS", body, inbox)
        while "Status" not in (headers := (message := await answers.get()).headers or {}):
            origin, lines = decode_origin(headers), decode_payload(headers, message.data)
            found.append(Read(int(headers["Nats-Sequence"]), origin, lines))
    return found


def read_lines(url: str) -> bytes:
    """Return every line of the stream as it is."""
    return b"".join(message.lines for message in ask(url, read_stream))


def received(url: str) -> bytes:
    """Return the stream's lines without repeated spans; raises if a span is missing."""
    ends: dict[str, int] = {}
    found = b""
    for message in ask(url, read_stream):
        for one in message.blocks:
            span = one.section.span
            before = ends.get(span.file_id)
            assert before is not None or span.start == 0, f"{span} does not begin at 0"
            judged = judge(before, one.section, "web01", message.sequence)
            assert before is None or span.start <= before, judged.anomaly
            found += one.lines[judged.skip :]
            ends[span.file_id] = max(span.end, before or 0)
    return found


def wait_for_lines(
    url: str, expected: bytes, *watched: Process, read: Callable[[str], bytes] = read_lines
) -> None:
    """Wait until all lines are in the stream, each once and in order."""
    wait_until("all lines are there", lambda: len(read(url)) >= len(expected), 40, watched)
    found = read(url)
    assert found == expected, str(judge_lines([expected], found))


async def until(holds: Callable[[], bool]) -> None:
    """Return as soon as `holds()` is true; what makes it true sets no event."""
    async with asyncio.timeout(40):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def live_report(process: Process) -> HostReport:
    """Return the status of a running agent; one on a busy machine may answer too late."""
    reports: list[HostReport] = []

    def has_answered() -> bool:
        reports[:] = [one for one in asyncio.run(live.ask())[0] if one.pid == process.pid]
        return bool(reports)

    wait_until("it says its status", has_answered, 30, [process])
    return reports[0]


@dataclass
class Line:
    """A TCP proxy to the broker: cut now, or instead of an answer that contains `cut_after`."""

    target: tuple[str, int]
    url: str = ""
    cut_after: bytes = b""
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # no broker
            answers, broker = await asyncio.open_connection(*self.target)
            self._writers += [writer, broker]
            await asyncio.gather(self._pump(reader, broker), self._pump(answers, writer, cuts=True))
        writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, cuts: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if cuts and self.cut_after and self.cut_after in data:
                    self.cut_after = b""
                    self.cut()
                    break
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        """End every connection, as a router that was switched off."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


@asynccontextmanager
async def open_line(url: str) -> AsyncIterator[Line]:
    """Open a proxy to the broker at an address."""
    credentials, at, address = url.removeprefix("nats://").rpartition("@")
    host, _, port = address.partition(":")
    line = Line((host, int(port)))
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    line.url = f"nats://{credentials}{at}127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield line
    server.close()
    line.cut()
