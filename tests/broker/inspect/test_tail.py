import asyncio
import logging
import tracemalloc
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
import zstandard

from broker.inspect.reader import get_message
from broker.inspect.tail import TailOptions
from broker.retention.purge import plan_purges
from broker.topology import Topology
from nats_logship.app.exits import OperatorError
from nats_logship.app.selection import LineSelection
from nats_logship.app.text import prefix_lines
from nats_logship.app.timestamps import format_time
from nats_logship.client.connection import Connection
from nats_logship.wire.message import Origin, Section, Span, encode_origin
from nats_logship.wire.streams import STREAM
from tests.broker.inspect.conftest import Publish, message, tail_lines
from tests.conftest import Server, apply_topology

pytestmark = pytest.mark.nats


async def _shown(connection: Connection, wanted: TailOptions, prefixed: bool = False) -> bytes:
    pieces = [one async for one in tail_lines(connection, wanted)]
    return b"".join(prefix_lines(one.host, one.lines) if prefixed else one.lines for one in pieces)


@pytest.mark.parametrize("claimed", [0, 1])
async def test_messages_with_a_false_number_of_lines_do_not_fill_the_memory(
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

    assert shown in {b"5\n" * 6, b""}  # a message with a number of 0 has no lines
    assert peak < 3 * size


async def test_the_last_lines_of_a_quiet_host_are_found(
    connection: Connection, publish: Publish
) -> None:
    await publish("quiet", b"long ago\n")
    for _ in range(6):
        await asyncio.gather(*(publish("loud", b"x\n") for _ in range(100)))

    wanted = TailOptions(LineSelection(hosts=("quiet",)), lines=3, follow=False)

    assert await _shown(connection, wanted) == b"long ago\n"


@pytest.mark.parametrize("lines", [None, 5], ids=["all", "the last"])
async def test_no_line_is_older_than_since(
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
        (TailOptions(LineSelection(hosts=("web*",))), b"web01: a\nweb02: c\n"),
        (TailOptions(LineSelection(hosts=("db01",))), b"db01: b\n"),
        (TailOptions(partitions=(1,)), b"db01: b\nplain: d\nplain: e\n"),
        (TailOptions(LineSelection(files=("auth.log",))), b"web02: c\n"),
        (TailOptions(LineSelection(hosts=("none",))), b""),
        (TailOptions(LineSelection(hosts=("db01",)), (0,)), b""),
        (TailOptions(lines=0), b""),
    ],
    ids=["hosts", "a host", "a partition", "a file", "nobody", "another partition", "no lines"],
)
async def test_only_the_selected_lines_are_shown(
    connection: Connection, publish: Publish, wanted: TailOptions, shown: bytes
) -> None:
    await publish("web01", b"a\n")
    await publish("db01", b"b\n", partition=1)
    await publish("web02", b"c\n", file="/var/log/auth.log")
    await connection.ask("logs.p1.plain", b"d\ne")  # of another client

    once = TailOptions(wanted.selection, wanted.partitions, None, wanted.lines, follow=False)

    assert await _shown(connection, once, prefixed=True) == shown


async def test_a_partition_that_does_not_exist_is_an_error(connection: Connection) -> None:
    with pytest.raises(
        OperatorError, match="partition 99 does not exist: the broker has 2, 0 to 1"
    ):
        await _shown(connection, TailOptions(partitions=(1, 99), follow=False))
    with pytest.raises(OperatorError, match="partition 2 does not exist"):
        await plan_purges(connection, partitions=(2,))


async def test_the_last_lines_of_a_file_are_shown_byte_for_byte(
    connection: Connection, publish: Publish
) -> None:
    more = (("/b", b"b1\n"), ("/a", b"\xff\x00\n"))
    await publish("web01", b"a1\na2\n", file="/a", more=more, compressed=True)

    wanted = TailOptions(LineSelection(files=("/a",)), lines=2, follow=False)

    assert await _shown(connection, wanted) == b"a2\n\xff\x00\n"


TRACES = b" rest\n1 a\n at a\n2 b\n at b\n3 c\n"


@pytest.mark.parametrize(
    ("records", "match", "lines", "shown"),
    [
        ("start:^[0-9]", "", 2, [b"2 b\n at b\n", b"3 c\n"]),
        ("start:^[0-9]", "at a|c", 9, [b"1 a\n at a\n", b"3 c\n"]),
        ("start:^[0-9]", "rest", 9, [b" rest\n"]),
        ("end:^ ", "b$", 1, [b"2 b\n at b\n"]),
        ("start:(", "at", 1, [b" at b\n"]),
        ("else:a", "", 1, [b"3 c\n"]),
    ],
)
async def test_records_are_matched_counted_and_shown_whole(
    connection: Connection,
    publish: Publish,
    records: str,
    match: str,
    lines: int,
    shown: list[bytes],
) -> None:
    await publish("web01", TRACES, records=records)

    wanted = TailOptions(match=match, lines=lines, follow=False)
    assert [one.lines async for one in tail_lines(connection, wanted)] == shown


async def test_millions_of_records_of_a_hostile_host_fill_no_memory(
    connection: Connection, publish: Publish
) -> None:
    await publish("evil", b"\n" * 6_000_000 + b"a\n", records="start:a")

    tracemalloc.start()
    shown = await _shown(connection, TailOptions(lines=1, follow=False))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (shown, peak < 100_000_000) == (b"a\n", True)


@pytest.mark.parametrize(("compressed", "payload"), [(True, b"no frame"), (False, b"x\ny\nz\n")])
async def test_a_message_whose_headers_are_wrong_is_logged_and_skipped(
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


async def test_after_a_kill_of_the_broker_no_line_is_missing_or_repeated(
    own_server: Server,
) -> None:
    await asyncio.to_thread(apply_topology, own_server.url, Topology(partitions=1))
    connection, sender = Connection([own_server.url], "tail"), Connection([own_server.url], "host")
    await connection.connect()
    found, sent = b"", b""

    async def watch() -> None:
        nonlocal found
        async for one in tail_lines(connection, TailOptions(since=0, lines=None)):
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
