"""Records and lines whose pieces are in several messages: found and shown whole."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.inspect.tail import TailOptions
from nats_logship.client.connection import Connection
from nats_logship.wire.message import Rest
from tests.broker.inspect.conftest import START, publish_piece, tail_lines
from tests.support.commands import run_command

pytestmark = pytest.mark.nats


async def _show(connection: Connection, match: str, lines: int | None = 9) -> list[bytes]:
    wanted = TailOptions(match=match, lines=lines, since=0, follow=False)
    return [one.lines async for one in tail_lines(connection, wanted)]


@pytest.mark.parametrize("lines", ["-n1", "-n9", "--since=earliest"])
def test_a_record_of_several_rounds_is_shown_whole_by_any_of_its_lines(
    logs_url: str, tmp_path: Path, lines: str
) -> None:
    log = tmp_path / "app.log"
    record = b"2 begin\n" + b"  at %s\n" % (b"x" * 95) * 60_000 + b"  at needle\n"
    log.write_bytes(b"1 before\n" + record + b"3 behind\n")
    options = ("--record-start=^[0-9]", "--record-lines=100000", "--once", "--host=web01")
    run_command("logshipper", "--server", logs_url, "--file", log, *options, seconds=120)

    words = ("tail", "--server", logs_url, "--no-follow", "--host=web01", "--match=needle", lines)

    assert run_command("logbroker", *words, seconds=60) == record.decode()


@pytest.mark.parametrize("lines", [None, 2], ids=["all", "the last"])
@pytest.mark.parametrize(
    ("pieces", "rest", "records", "shown"),
    [
        ([b"1 a\n2 b\n", b" x\n", b" at\n3 c\n"], "", START, b"2 b\n x\n at\n"),
        ([b"1 a\n a", b"t x\n2 b\n"], "", START, b"1 a\n at x\n"),
        ([b"1 a\n at\n", b" no end\n"], "kept", START, b"1 a\n at\n no end\n"),
        ([b"1 a\n2 b\n", b" at\n3\nz\n"], "", "end:^3", b"1 a\n2 b\n at\n3\n"),
        ([b"a\nb", b"c a", b"t d\ne\n"], "", "", b"bc at d\n"),
    ],
    ids=["records", "inside a line", "no end", "ends of records", "a line"],
)
async def test_pieces_that_the_shipper_continues_are_joined(
    connection: Connection,
    lines: int | None,
    pieces: Sequence[bytes],
    rest: Rest,
    records: str,
    shown: bytes,
) -> None:
    at = 0
    for piece in pieces:
        await publish_piece(connection, piece, at, rest if piece is pieces[-1] else "kept", records)
        at += len(piece)
    for _ in range(40):  # the first search of the last lines covers fewer messages
        await connection.ask("logs.p0.web02", b"other\n")

    assert await _show(connection, "at", lines) == [shown]


async def test_pieces_with_a_gap_between_them_are_not_joined(connection: Connection) -> None:
    await publish_piece(connection, b"1 a\n at x\n", 0, "kept")
    await publish_piece(connection, b" at y\n2 b\n", 99)

    assert await _show(connection, "at") == [b"1 a\n at x\n", b" at y\n"]


async def test_records_that_never_end_are_shown_in_pieces_and_fill_no_memory(
    connection: Connection,
) -> None:
    piece = b" at " + b"x" * 1_000_000 + b"\n"
    for number in range(20):
        await publish_piece(connection, piece, number * len(piece), "kept")

    shown = await _show(connection, "at")

    assert b"".join(shown) == piece * 20
    assert 2 <= len(shown) <= 5


async def test_a_new_record_is_shown_once_it_is_whole(connection: Connection) -> None:
    found: asyncio.Queue[bytes] = asyncio.Queue()

    async def watch() -> None:
        async for one in tail_lines(connection, TailOptions(since=0, match="at")):
            await found.put(one.lines)

    await connection.ask("logs.p0.web02", b"at first\n")
    watching = asyncio.ensure_future(watch())
    async with asyncio.timeout(60):
        assert await found.get() == b"at first\n"
        await publish_piece(connection, b"1 a\n", 0, "kept")
        await publish_piece(connection, b" at\n", 4, "kept")
        await publish_piece(connection, b" x\n2 b\n", 8)
        assert await found.get() == b"1 a\n at\n x\n"
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
