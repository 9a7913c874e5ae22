"""Whatever bytes are in files are in the stream as they are, by way of the real program and a real broker."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.shipper.logs import Ship

pytestmark = pytest.mark.nats

BLOCK, LINE = 256 * 1024, 1024 * 1024


def line(length: int) -> bytes:
    return b"x" * (length - 1) + b"\n"


CONTENTS = {
    "crlf": b"one\r\n\r\ntwo\r\n",
    "nul and invalid": b"\0\n\xff\xfe\xc3(\n\n",
    "only newlines": b"\n" * 10_000,
    "bom": b"\xef\xbb\xbfone\n" + "\ufeffone\n".encode("utf-16-be"),
    "random": os.urandom(300_000).replace(b"\n", b" ") + b"\n",
    "about a block": line(BLOCK - 1) + line(BLOCK) + line(BLOCK + 1),
    "about the greatest line": line(LINE - 1) + line(LINE) + line(LINE + 1) + line(3 * LINE),
}


@pytest.mark.parametrize("options", [[], ["--compression", "none", "--max-line", "64KiB"]])
async def test_every_content_is_in_the_stream_byte_for_byte(
    logs_url: str,
    ship: Ship,
    tmp_path: Path,
    stream: Callable[[], Awaitable[list[Any]]],
    options: list[str],
) -> None:
    for name, content in CONTENTS.items():
        (tmp_path / f"{name}.log").write_bytes(content)

    done = ship(logs_url, "--file", tmp_path / "*.log", "--once", *options)

    assert await asyncio.to_thread(done.wait, 60) == 0, done.last_words()
    got: dict[str, bytes] = {}
    for message in await stream():
        for block in message.blocks:
            name = Path(block.section.path).stem
            assert block.section.span.start == len(got.get(name, b""))
            got[name] = got.get(name, b"") + block.lines
    assert got == CONTENTS
