"""The real program on real files against a real broker: ended, killed, cut off, fenced; nothing lost, nothing twice."""

import random
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.shipper.conftest import arrives, read_lines, received
from tests.shipper.logs import Ship, append, lines, rotate
from tests.shipper.saved import Saved
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats


def test_once_ships_what_is_there_and_only_once(logs_url: str, ship: Ship, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    append(log, lines(0, 50_000) + b"unfinished")

    first = ship(logs_url, "--file", log, "--once")
    assert first.wait(60) == 0, first.last_words()
    second = ship(logs_url, "--file", log, "--once")
    assert second.wait(60) == 0, second.last_words()

    assert read_lines(logs_url) == lines(0, 50_000)
    assert "10 bytes of an unfinished last line" in first.said()


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
@pytest.mark.parametrize("step", [1, 2], ids=["all lines", "every other line"])
def test_files_rotated_while_the_shipper_is_killed_arrive_whole_and_in_order(
    logs_url: str, ship: Ship, tmp_path: Path, seed: int, step: int
) -> None:
    chance = random.Random(seed)
    log = tmp_path / "log" / "a.log"
    log.parent.mkdir()
    log.touch()
    options = ("--round-size", 65536, "--grace", "1s")
    left_out = ("--exclude-lines", "[13579] the") if step == 2 else ()
    process = ship(logs_url, "--file", log, *options, *left_out)
    # what was rotated away before anything was shipped is nobody's, as far as a next start can know
    append(log, lines(0, 1))
    arrives(logs_url, lines(0, 1), process)
    written = 1
    for _ in range(6):
        for _ in range(chance.randrange(10, 40)):
            count = chance.randrange(1, 2000)
            append(log, lines(written, written + count))
            written += count
            if chance.random() < 0.1:
                rotate(log)
            time.sleep(chance.uniform(0, 0.03))
        process.kill()
        if chance.random() < 0.5:
            Saved(logs_url).put(None)
        if chance.random() < 0.5:
            append(log, lines(written, written + 100))
            written += 100
            rotate(log)
        process.start()

    append(log, lines(written, written + 1 + written % 2))  # the last one is shipped
    written += 1 + written % 2
    arrives(logs_url, lines(0, written, step), process)
    assert received(logs_url) == lines(0, written, step)  # without a gap between them
    wait_until("runs", lambda: process.catches(signal.SIGTERM), 40, [process])
    assert process.stop(10) == 0


def test_without_acknowledgements_lines_are_shipped_and_positions_move(
    logs_url: str, ship: Ship, tmp_path: Path
) -> None:
    log = tmp_path / "a.log"
    append(log, lines(0, 1000))

    assert ship(logs_url, "--file", log, "--once", "--no-ack").wait(60) == 0
    assert ship(logs_url, "--file", log, "--once", "--no-ack").wait(60) == 0

    assert read_lines(logs_url) == lines(0, 1000)


async def test_lines_of_many_files_are_one_message(
    logs_url: str, ship: Ship, tmp_path: Path, stream: Callable[[], Awaitable[list[Any]]]
) -> None:
    expected = {str(tmp_path / f"{number}.log"): lines(number, number + 1) for number in range(50)}
    for path, content in expected.items():
        append(Path(path), content)

    assert ship(logs_url, "--file", tmp_path / "*.log", "--once").wait(60) == 0

    _claim, message = await stream()
    assert {block.section.path: block.lines for block in message.blocks} == expected
    assert len(message.blocks) == 50
