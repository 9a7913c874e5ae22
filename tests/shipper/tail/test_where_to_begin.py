"""Where reading begins in files never seen: `--from end`, `--ignore-older`, and what restarts make of either."""

import os
from pathlib import Path

import pytest

from shipper.tail.scan import NoticeKind
from tests.shipper.host import SECOND
from tests.shipper.tail.conftest import MakeHost

DAY = 86_400 * SECOND


def backdate(path: Path, nanoseconds: int) -> None:
    then = path.stat().st_mtime_ns - nanoseconds
    os.utime(path, ns=(then, then))


@pytest.mark.parametrize(
    ("content", "offset"),
    [
        pytest.param(b"", 0, id="nothing"),
        pytest.param(b"unfinished", 0, id="no line is whole"),
        pytest.param(b"one\ntwo\n", 8, id="whole lines"),
        pytest.param(b"one\nunfinished", 4, id="an unfinished last line"),
        pytest.param(b"one\n" + b"x" * 200_000, 4, id="a long one"),
    ],
)
async def test_a_file_is_begun_behind_its_last_newline(
    make_host: MakeHost, content: bytes, offset: int
) -> None:
    host = make_host(from_end=True)
    host.write("app.log", content)
    assert await host.ship() == b""

    host.write("app.log", b"\n")

    assert await host.ship() == content[offset:] + b"\n"
    assert [block.section.span.start for block in host.blocks] == [offset]


@pytest.mark.parametrize("stood", [b"old\n", b"old\nhalf", b""])
async def test_a_restart_keeps_the_place_of_a_file_of_which_nothing_was_shipped(
    make_host: MakeHost, stood: bytes
) -> None:
    host = make_host(from_end=True)
    host.write("app.log", stood)
    await host.ship()

    for _ in range(2):
        await host.restart_with_saved_positions()
        host.write("app.log", b"while it was down\n")
        await host.look()
    host.move("app.log", "app.log.1")
    host.write("app.log", b"next\n")
    await host.restart_with_saved_positions()

    half = stood.rpartition(b"\n")[2]
    assert await host.ship() == half + b"while it was down\n" * 2 + b"next\n"


async def test_an_old_file_is_passed_over_until_it_is_written_to(
    tmp_path: Path, make_host: MakeHost
) -> None:
    host = make_host("*.log", ignore_older=DAY)
    host.write("old.log", b"1\n")
    host.write("new.log", b"2\n")
    backdate(tmp_path / "old.log", 2 * DAY)

    assert await host.ship() == b"2\n"
    await host.look()
    assert len(host.said(NoticeKind.AGED)) == 1

    host.write("old.log", b"3\n")
    assert await host.ship() == b"1\n3\n"


async def test_a_file_that_we_know_is_never_too_old(tmp_path: Path, make_host: MakeHost) -> None:
    host = make_host(ignore_older=DAY)
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"2\n")
    backdate(tmp_path / "app.log", 2 * DAY)
    await host.restart_with_saved_positions()

    assert await host.ship() == b"2\n"
    host.later = 3 * DAY
    await host.ship()
