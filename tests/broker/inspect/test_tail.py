import asyncio
import logging
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
import zstandard

from broker.inspect.reader import get_message
from broker.inspect.tail import TailOptions, prefix_lines, tail
from broker.topology import Topology
from nats_logship.app.selection import LineSelection
from nats_logship.app.timestamps import format_time
from nats_logship.client.connection import Connection
from nats_logship.wire.message import Origin, Section, Span, encode_origin
from nats_logship.wire.streams import STREAM
from tests.broker.inspect.conftest import Publish, message
from tests.conftest import Server, apply_topology

pytestmark = pytest.mark.nats

Lines = Callable[[int], bytes]


async def _shown(connection: Connection, wanted: TailOptions, prefixed: bool = False) -> bytes:
    pieces = [one async for one in tail(connection, wanted)]
    return b"".join(prefix_lines(one.host, one.lines) if prefixed else one.lines for one in pieces)


@pytest.mark.parametrize("claimed", [0, 1])
async def test_messages_that_lie_about_their_lines_do_not_fill_the_memory(
    connection: Connection, claimed: int
) -> None:
    size = 16 * 1024 * 1024
    origin = Origin("evil", 1, (Section("/a", Span("f", 0, size), size, claimed),), compressed=True)
    for number in range(6):
        payload = zstandard.compress(b"%d\n" % number * (size // 2))
        await connection.ask("logs.p0.evil", payload, encode_origin(origin))

    tracemalloc.start()
    shown = await _shown(connection, TailOptions(lines=6, follow=False))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert shown in {b"5\n" * 6, b""}  # a message that claims to have none has none
    assert peak < 3 * size


async def test_a_host_that_has_been_quiet_for_long_is_found_all_the_same(
    connection: Connection, publish: Publish
) -> None:
    await publish("quiet", b"long ago\n")
    for _ in range(6):
        await asyncio.gather(*(publish("loud", b"x\n") for _ in range(100)))

    wanted = TailOptions(LineSelection(hosts=("quiet",)), lines=3, follow=False)

    assert await _shown(connection, wanted) == b"long ago\n"


@pytest.mark.parametrize("lines", [None, 5], ids=["all", "the last"])
async def test_no_line_is_older_than_the_time_asked_for(
    connection: Connection, publish: Publish, lines: int | None
) -> None:
    await publish("web01", b"a\n")
    await publish("web01", b"b\n")
    second = await get_message(connection, STREAM, 2)
    since = datetime.fromisoformat(format_time(second.stored_at - 10_000))
    wanted = TailOptions(since=since, lines=lines, follow=False)

    assert await _shown(connection, wanted) == b"b\n"
    assert await _shown(connection, replace(wanted, since=since + timedelta(days=1))) == b""


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        pytest.param(
            TailOptions(LineSelection(hosts=("web*",))), b"web01: a\nweb02: c\n", id="hosts"
        ),
        pytest.param(TailOptions(LineSelection(hosts=("db01",))), b"db01: b\n", id="a host"),
        pytest.param(
            TailOptions(partitions=(1,)), b"db01: b\nplain: d\nplain: e\n", id="a partition"
        ),
        pytest.param(TailOptions(LineSelection(files=("auth.log",))), b"web02: c\n", id="a file"),
        pytest.param(TailOptions(LineSelection(hosts=("none",))), b"", id="nobody"),
        pytest.param(
            TailOptions(LineSelection(hosts=("db01",)), (0,)), b"", id="not in that partition"
        ),
        pytest.param(TailOptions(lines=0), b"", id="no lines"),
    ],
)
async def test_only_what_was_asked_for_is_shown(
    connection: Connection, publish: Publish, wanted: TailOptions, shown: bytes
) -> None:
    await publish("web01", b"a\n")
    await publish("db01", b"b\n", partition=1)
    await publish("web02", b"c\n", file="/var/log/auth.log")
    await connection.ask("logs.p1.plain", b"d\ne")  # of another client

    once = TailOptions(wanted.selection, wanted.partitions, None, wanted.lines, follow=False)

    assert await _shown(connection, once, prefixed=True) == shown


async def test_the_last_lines_are_those_of_wanted_files_decompressed_and_byte_for_byte(
    connection: Connection, publish: Publish
) -> None:
    more = (("/b", b"b1\n"), ("/a", b"\xff\x00\n"))
    await publish("web01", b"a1\na2\n", file="/a", more=more, compressed=True)

    wanted = TailOptions(LineSelection(files=("/a",)), lines=2, follow=False)

    assert await _shown(connection, wanted) == b"a2\n\xff\x00\n"


@pytest.mark.parametrize(("compressed", "payload"), [(True, b"no frame"), (False, b"x\ny\nz\n")])
async def test_a_message_that_is_not_what_it_says_is_named_and_passed(
    connection: Connection,
    publish: Publish,
    caplog: pytest.LogCaptureFixture,
    compressed: bool,
    payload: bytes,
) -> None:
    _, headers = message(b"x\n", compressed=compressed, more=(("/b", b"y\n"),))
    await connection.ask("logs.p0.web01", payload, headers)
    await publish("web01", b"good\n")

    with caplog.at_level(logging.WARNING):
        shown = await _shown(connection, TailOptions(follow=False))

    assert shown == b"good\n"
    assert "message 1 holds no lines" in caplog.text


async def test_a_broker_that_is_killed_costs_no_line_and_repeats_none(own_server: Server) -> None:
    await asyncio.to_thread(apply_topology, own_server.url, Topology(partitions=1))
    connection, sender = Connection([own_server.url], "tail"), Connection([own_server.url], "host")
    await connection.connect()
    found, sent = b"", b""

    async def watch() -> None:
        nonlocal found
        async for one in tail(connection, TailOptions(since=0, lines=None)):
            found += one.lines

    watching = asyncio.ensure_future(watch())
    for _ in range(2):
        for number in range(50):
            line = b"line %d of %d\n" % (number, len(sent))
            await sender.ask("logs.p0.web01", line)
            sent += line
        await asyncio.to_thread(own_server.kill_and_restart)
    await sender.ask("logs.p0.web01", b"last\n")
    async with asyncio.timeout(90):
        while not found.endswith(b"last\n"):
            assert not watching.done(), watching.result()
            await asyncio.sleep(0.05)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await connection.close()
    await sender.close()

    assert found == sent + b"last\n"
