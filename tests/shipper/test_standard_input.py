"""Standard input as a source of lines: whatever it is, it is read as far as there is room, to its end or to a stop."""

import asyncio
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from broker.block import Block
from broker.exits import OperatorError
from broker.running.configuration import load
from shipper.files.limits import Limits
from shipper.reload import reload
from shipper.settings import ShipperSettings
from shipper.standard_input import StandardInput

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    ends = list(os.pipe())
    yield ends
    for end in ends:
        if end >= 0:
            os.close(end)


def close_writer(pipe: list[int]) -> None:
    os.close(pipe[1])
    pipe[1] = -1


def source(
    descriptor: int, stopping: asyncio.Event | None = None, block_size: int = 100
) -> StandardInput:
    limits = Limits(block_size, 3 * block_size, 0, 0)
    return StandardInput("f", limits, time.time_ns, stopping or asyncio.Event(), descriptor)


async def gather_all(source: StandardInput, budget: int = 1 << 20) -> list[Block]:
    """Gather until the source has ended."""
    blocks: list[Block] = []
    async with asyncio.timeout(60):
        await source.look()
        while not source.has_ended:
            got = await source.gather(budget)
            blocks += got
            if not got:
                await source.wait(5)
    await source.close()
    return blocks


def payload(blocks: list[Block]) -> bytes:
    return b"".join(block.payload for block in blocks)


def spans(blocks: list[Block]) -> list[tuple[int, int]]:
    return [(b.origin.span.start, b.origin.span.end) for b in blocks if b.origin.span]


@pytest.fixture
async def piped(pipe: list[int]) -> AsyncIterator[StandardInput]:
    made = source(pipe[0])
    await made.look()
    yield made
    await made.close()


async def test_a_line_comes_when_it_is_written(piped: StandardInput, pipe: list[int]) -> None:
    assert await piped.gather(1000) == []
    os.write(pipe[1], b"one\ntw")
    await piped.wait(10)

    (block,) = await piped.gather(1000)

    assert block.payload == b"one\n"
    assert (block.origin.file, block.origin.identity) == ("-", None)
    assert piped.states()[0].held == 2
    assert not piped.has_ended


@pytest.mark.parametrize(
    ("written", "shipped"),
    [
        pytest.param(b"", b"", id="nothing"),
        pytest.param(b"one\n", b"one\n", id="a line"),
        pytest.param(b"one\ntwo", b"one\ntwo\n", id="an unfinished last line gets its newline"),
        pytest.param(b"\n\n\n", b"\n\n\n", id="empty lines"),
        pytest.param(b"\0\xff\r\n\xfe", b"\0\xff\r\n\xfe\n", id="any bytes"),
        pytest.param(b"x" * 1000 + b"\ny\n", b"x" * 1000 + b"\ny\n", id="a line in pieces"),
        pytest.param(b"x" * 300, b"x" * 300 + b"\n", id="a last line that is just one piece"),
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "file"])
async def test_what_comes_until_the_end_is_shipped(
    pipe: list[int], tmp_path: Path, written: bytes, shipped: bytes, kind: str
) -> None:
    os.write(pipe[1], written)
    close_writer(pipe)
    (tmp_path / "redirected").write_bytes(written)
    descriptor = os.open(tmp_path / "redirected", os.O_RDONLY)

    blocks = await gather_all(source(pipe[0] if kind == "pipe" else descriptor))
    os.close(descriptor)

    assert payload(blocks).removesuffix(b"\n") == shipped.removesuffix(b"\n")
    assert payload(blocks).endswith(b"\n") or not written
    assert [start for start, _ in spans(blocks)] == [0, *(end for _, end in spans(blocks))][:-1]
    assert sum(end - start for start, end in spans(blocks)) == len(written)


async def test_nothing_at_all_is_an_end() -> None:
    descriptor = os.open("/dev/null", os.O_RDONLY)

    assert await gather_all(source(descriptor)) == []
    os.close(descriptor)


async def test_a_terminal_is_read_line_by_line_to_its_end() -> None:
    keyboard, terminal = os.openpty()
    os.write(keyboard, b"typed\n\x04")

    blocks = await gather_all(source(terminal))

    assert payload(blocks) == b"typed\n"
    os.close(keyboard)
    os.close(terminal)


async def test_a_folder_cannot_be_read_and_that_is_said(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    made = source(descriptor)
    await made.look()

    with pytest.raises(OperatorError, match="cannot read standard input: Is a directory"):
        await made.gather(1000)
    os.close(descriptor)


async def test_the_writer_is_made_to_wait_while_nobody_gathers(pipe: list[int]) -> None:
    os.set_blocking(pipe[1], False)
    made = source(pipe[0])
    await made.look()
    sent = 0
    stuck = 0
    while stuck < 20:
        try:
            sent += os.write(pipe[1], b"x" * 63 + b"\n")
            stuck = 0
        except BlockingIOError:
            stuck += 1
            await asyncio.sleep(0.005)

    assert sent < 2 * 1024 * 1024

    got = payload(await made.gather(1 << 20))
    assert len(got) >= 1 << 19
    await made.wait(10)
    assert payload(await made.gather(1 << 22)) != b""
    await made.close()


async def test_a_stop_reads_no_more_and_ships_what_was_read(pipe: list[int]) -> None:
    stopping = asyncio.Event()
    made = source(pipe[0], stopping)
    await made.look()
    os.write(pipe[1], b"one\ntwo")
    await made.wait(10)
    stopping.set()
    os.write(pipe[1], b"three\n")
    await asyncio.sleep(0)

    assert payload(await gather_all(made)) == b"one\ntwo\n"


@pytest.mark.parametrize("seed", range(3))
async def test_any_writing_and_gathering_gives_the_same_bytes(pipe: list[int], seed: int) -> None:
    chance = random.Random(seed)
    parts = [
        chance.choice([b"\n", b"ab\n", b"x" * chance.randrange(700), b"\xff\0"]) for _ in range(900)
    ]

    def write() -> None:
        for part in parts:
            os.write(pipe[1], part)
        close_writer(pipe)

    writer = threading.Thread(target=write)
    writer.start()
    blocks = await gather_all(source(pipe[0]), budget=chance.choice([1, 99, 5000]))
    writer.join(10)

    written = b"".join(parts)
    assert payload(blocks) == written + (b"" if written.endswith(b"\n") else b"\n")
    assert all(len(block.payload) <= 301 for block in blocks)


@pytest.mark.parametrize(("old", "new"), [("-", "a.log"), ("a.log", "-")])
def test_a_reload_leaves_it_to_the_next_start_to_come_to_or_from_standard_input(
    old: str, new: str
) -> None:
    before = load(ShipperSettings, {"file": (old,)}, None)

    done = reload(before, load(ShipperSettings, {"file": (new,), "compression": "none"}, None))

    assert done.settings.file == (old,)
    assert (done.changed, done.waiting) == (("compression",), ("file",))
