"""The real program leaves out lines, is killed in the middle, and the stream shows neither a gap nor a repeat."""

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from receiver.consume.judging import judge
from tests.shipper.logs import ROOT, append, lines
from tests.shipper.saved import Saved
from tests.support.processes import Processes, wait_until

pytestmark = pytest.mark.nats


@pytest.fixture
def command(logs_url: str, tmp_path: Path) -> list[str]:
    words = ["--file", str(tmp_path / "a.log"), "--server", logs_url, "--host", "web01"]
    words += ["--exclude-lines", "[13579] the"]
    return [sys.executable, "-m", "shipper", *words]


def shipped(messages: list[Any]) -> bytes:
    return b"".join(message.lines for message in messages)


def has_no_gap_and_no_repeat(messages: list[Any]) -> bool:
    reached = 0
    for message in messages:
        for section in message.origin.sections:
            judged = judge(reached, section, "web01", message.sequence)
            if judged.finding or judged.skip:
                return False
            reached = section.span.end
    return True


async def test_killed_at_random_moments_it_ships_every_other_line_once(
    command: list[str],
    tmp_path: Path,
    logs_url: str,
    processes: Processes,
    stream: Callable[[], Awaitable[list[Any]]],
) -> None:
    chance = random.Random(7)
    log = tmp_path / "a.log"
    log.touch()
    process = processes.start("shipper", [*command, "--round-size", "65536"], folder=ROOT)
    written = 0
    for _ in range(4):
        deadline = time.monotonic() + chance.uniform(0.4, 1.0)
        while time.monotonic() < deadline:
            count = 2 * chance.randrange(1, 1000)
            append(log, lines(written, written + count))
            written += count
            time.sleep(chance.uniform(0, 0.02))  # noqa: ASYNC251 - nothing else runs on this loop
        process.kill()
        if chance.random() < 0.5:
            await asyncio.to_thread(Saved(logs_url).put, None)
        process.start()
    append(log, lines(written, written + 1))

    expected = lines(0, written + 1, 2)
    deadline = time.monotonic() + 30
    while shipped(messages := await stream()) != expected:
        assert time.monotonic() < deadline, process.last_words()
        process.check()
        time.sleep(0.05)  # noqa: ASYNC251 - as above

    assert has_no_gap_and_no_repeat(messages)
    wait_until("it is up", lambda: "ships on" in process.said(), 30, [process])
    assert process.stop(10) == 0
