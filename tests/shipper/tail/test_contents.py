"""Whatever bytes are in a file come out as they are: the table of what has tripped others up, and any bytes at all."""

import asyncio
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.tail.reader import Block
from tests.shipper.host import Host
from tests.shipper.tail.conftest import MakeHost

BLOCK, LINE = 100, 300


def line(length: int) -> bytes:
    """Return a line of `length` bytes with its newline."""
    return b"x" * (length - 1) + b"\n"


CONTENTS = {
    "CRLF": b"one\r\n\r\ntwo\r\n\r\r\n",
    "NUL": b"\0\n\0\0one\0two\n",
    "invalid UTF-8": b"\xff\xfe\xc3(\xed\xa0\x80\n\x80\n",
    "other line ends of Unicode": "one\x0btwo\x0cthree\x85four\u2028five\n".encode(),
    "only newlines": b"\n" * 1000,
    "UTF-16": "\ufeffone\ntwo\n".encode("utf-16-be"),
    "escapes": b"\x1b[31mred\x1b[0m %s %d {} \\n\n",
    "header lines of HTTP": b"NATS/1.0\r\nLog-Span: x\r\n\r\n",
    "short and long in turns": (b"a\n" + line(BLOCK + 7) + line(5 * LINE)) * 5,
} | {
    f"lines of {length} bytes": line(length) * 3
    for edge in (BLOCK, LINE, 2 * LINE)
    for length in (edge - 1, edge, edge + 1)
}


def by_file(blocks: Iterable[Block]) -> dict[str, bytes]:
    """Return what came of each file, by name; every span follows the one before it, without a hole."""
    got: dict[str, bytes] = {}
    reached: dict[str, int] = {}
    for block in blocks:
        span = block.section.span
        assert span is not None
        assert span.start == reached.get(span.file, 0)
        assert len(block.lines) - (span.end - span.start) in {0, 1}
        assert block.section.lines == block.lines.count(b"\n")
        reached[span.file] = span.end
        name = Path(block.section.path).name
        got[name] = got.get(name, b"") + block.lines
    return got


@pytest.mark.parametrize("budget", [1, 150, 1 << 22])
async def test_every_content_comes_out_as_it_is(make_host: MakeHost, budget: int) -> None:
    host = make_host("*.log", block_size=BLOCK, max_line=LINE)
    for name, content in CONTENTS.items():
        host.write(f"{name}.log", content)
    await host.look()

    await host.gather(budget)

    assert by_file(host.blocks) == {f"{name}.log": text for name, text in CONTENTS.items()}


writes = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.sampled_from([b"\n", b"\r\n", b"\0", line(17), b"y" * 45, b"end\n"]),
    ),
    max_size=12,
)


@settings(max_examples=30, deadline=None)
@given(writes, st.integers(1, 50), st.integers(1, 50), st.lists(st.integers(1, 120), min_size=1))
def test_any_bytes_in_any_chunks_give_the_same_bytes(
    parts: list[bytes], block_size: int, max_line: int, budgets: list[int]
) -> None:
    async def follow(folder: Path) -> bytes:
        host = Host(folder, block_size=block_size, max_line=max_line)
        host.write("app.log", b"")
        await host.look()
        for number, part in enumerate(parts):
            host.write("app.log", part)
            await host.look()
            host.blocks += await host.follower.gather(budgets[number % len(budgets)])
            if number % 5 == 4:
                await host.restart()
        host.write("app.log", b"\n")
        await host.ship()
        await host.follower.close()
        return by_file(host.blocks).get("app.log", b"")

    with tempfile.TemporaryDirectory() as folder:
        assert asyncio.run(follow(Path(folder))) == b"".join(parts) + b"\n"
