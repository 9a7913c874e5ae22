"""Whatever bytes are in a file come out as they are."""

import asyncio
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.tail.reader import Block
from tests.shipper.host import Host


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


writes = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.sampled_from([b"\n", b"\r\n", b"\0\n", b"x" * 16 + b"\n", b"y" * 45, b"\xff\xfe\x85\n"]),
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
