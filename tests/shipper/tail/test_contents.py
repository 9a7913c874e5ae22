"""Whatever bytes are in a file come out as they are."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.tail.reader import Block
from tests.shipper.host import Host
from tests.shipper.shipped import Verdict, contents

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
    async def follow(folder: Path) -> list[Block]:
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
        return host.blocks

    with tempfile.TemporaryDirectory() as folder:
        blocks = asyncio.run(follow(Path(folder)))
    verdict = Verdict()
    assert list(contents(blocks, verdict).values()) == [b"".join(parts) + b"\n"]
    assert verdict.is_perfect, verdict
    assert all(block.section.lines == block.lines.count(b"\n") for block in blocks)
