import asyncio
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator

import pytest

from broker.client.connection import Connection
from broker.looking import feed, top
from broker.looking.top import watch
from broker.looking.traffic import Traffic
from broker.topology import Topology
from tests.broker.conftest import LOGBROKER
from tests.broker.looking.conftest import Publish
from tests.conftest import Server, apply_topology

pytestmark = pytest.mark.nats


async def test_what_comes_in_is_counted_by_host_and_partition(
    connection: Connection, publish: Publish
) -> None:
    await publish("quiet", b"x\n", partition=1)
    pictures = watch(connection, 0.2)
    picture = await anext(pictures)
    while not picture.lines_in:
        await publish("web01", b"a\nb\n")
        picture = await anext(pictures)
    await pictures.aclose()

    hosts = {host.host: host for host in picture.hosts}
    assert hosts["web01"].lines > 0 == hosts["quiet"].lines
    assert hosts["quiet"].silent > 0
    assert picture.partitions[0].lines_in > 0 == picture.partitions[1].lines_in


async def test_more_than_can_be_looked_at_is_passed_over_and_said(
    connection: Connection, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "_TOO_MANY", 50)
    monkeypatch.setattr(feed, "_BATCH", 10)
    await asyncio.gather(*(publish("web01", b"a\n") for _ in range(200)))
    traffic = Traffic(0.0)

    counting = asyncio.ensure_future(top._count(connection, traffic, 1))
    async with asyncio.timeout(60):
        while not traffic.skipped:
            await connection.api("INFO")
    counting.cancel()
    await asyncio.gather(counting, return_exceptions=True)

    assert 100 <= traffic.skipped <= 190


async def test_a_broker_that_goes_away_is_waited_for(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "_PATIENCE", 0.5)
    await asyncio.to_thread(apply_topology, own_server.url, Topology(partitions=1))
    connection = Connection([own_server.url], "top")
    await connection.once()
    pictures = watch(connection, 0.1)
    assert (await anext(pictures)).trouble == ""
    await asyncio.to_thread(own_server.stop)
    async with asyncio.timeout(90):
        while not (await anext(pictures)).trouble:
            pass
    await asyncio.to_thread(own_server.start)
    async with asyncio.timeout(90):
        while (await anext(pictures)).trouble:
            pass
    await connection.ask("logs.p0.web01", b"a\n")
    async with asyncio.timeout(90):
        while not (await anext(pictures)).lines_in:
            pass
    await pictures.aclose()
    await connection.close()


class _Terminal:
    """A program under a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.page, other = pty.openpty()
        self.before = termios.tcgetattr(other)
        self.resize(24, 80)
        self.program = subprocess.Popen(
            [*LOGBROKER, *arguments], stdin=other, stdout=other, stderr=other, process_group=0
        )
        self.other = other
        self.shown = b""
        self.passed = 0

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.page, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, text: bytes) -> bytes:
        begin = self.passed
        while (found := self.shown.find(text, begin)) < 0:
            self.shown += os.read(self.page, 65536)
        self.passed = found + len(text)
        return self.shown[begin : self.passed]

    def type(self, keys: bytes) -> None:
        os.write(self.page, keys)

    @property
    def is_as_it_was(self) -> bool:
        return termios.tcgetattr(self.other) == self.before

    def close(self) -> None:
        self.program.kill()
        self.program.wait()
        os.close(self.page)
        os.close(self.other)


@pytest.fixture
def terminal(logs_url: str) -> Iterator[_Terminal]:
    terminal = _Terminal("top", "--server", logs_url, "--interval", "200ms")
    yield terminal
    terminal.close()


async def test_the_screen_is_taken_over_redrawn_and_given_back(
    terminal: _Terminal, publish: Publish
) -> None:
    await publish("web01", b"a\n")
    await publish("db01", b"b\n", partition=1)

    def play() -> bytes:
        terminal.until(b"\x1b[?1049h")
        terminal.until(b"web01")
        taken = not terminal.is_as_it_was
        terminal.resize(12, 40)
        terminal.program.send_signal(signal.SIGWINCH)
        terminal.type(b"n")
        terminal.until(b"hosts 2")
        terminal.type(b"q")
        last = terminal.until(b"\x1b[?1049l")
        assert taken
        return last

    last = await asyncio.to_thread(play)

    assert await asyncio.to_thread(terminal.program.wait, 20) == 0
    assert terminal.is_as_it_was
    assert b"\x1b[?25h" in last  # the cursor is back
    assert b"\n\n" not in terminal.shown.replace(b"\r", b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
async def test_a_signal_gives_the_terminal_back(
    terminal: _Terminal, number: signal.Signals
) -> None:
    await asyncio.to_thread(terminal.until, b"hosts 0")
    terminal.program.send_signal(number)
    await asyncio.to_thread(terminal.until, b"\x1b[?1049l")

    assert await asyncio.to_thread(terminal.program.wait, 20) == 0
    assert terminal.is_as_it_was


def test_an_error_is_said_on_a_terminal_that_is_as_it_was() -> None:
    terminal = _Terminal("top", "--server", "nats://127.0.0.1:1")
    terminal.until(b"\x1b[?1049l")
    said = terminal.until(b"logbroker run")
    ended, is_as_it_was = terminal.program.wait(60), terminal.is_as_it_was
    terminal.close()

    assert b"no broker at nats://127.0.0.1:1" in said
    assert (ended, is_as_it_was) == (1, True)


async def test_without_a_terminal_a_picture_is_plain_text(logs_url: str, publish: Publish) -> None:
    await publish("web01", b"a\n")

    ended = await asyncio.to_thread(
        subprocess.run,
        [*LOGBROKER, "top", "--once", "--interval", "200ms", "--server", logs_url],
        capture_output=True,
        timeout=20,
    )

    assert ended.returncode == 0
    assert b"\x1b" not in ended.stdout
    assert b"web01" in ended.stdout
    assert ended.stderr == b""
