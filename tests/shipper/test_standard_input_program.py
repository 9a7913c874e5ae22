"""The real program behind a pipe: what was written arrives once and in order, and it ends when its input does."""

import fcntl
import itertools
import json
import os
import shlex
import struct
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from bench.processes import Process, Processes, wait_until

pytestmark = pytest.mark.nats

Start = Callable[..., Process]


@pytest.fixture
def start(processes: Processes, tmp_path: Path) -> Start:
    numbers = itertools.count()

    def start(url: str, redirection: str, *options: str) -> Process:
        state = str(tmp_path / "state")
        words = ["--file", "-", "--server", url, "--host", "web01", "--state-dir", state, *options]
        command = shlex.join([sys.executable, "-m", "shipper", *words])
        return processes.start(
            f"shipper-{next(numbers)}",
            ["sh", "-c", f"exec {command} {redirection}"],
            folder=Path(__file__).parents[2],
        )

    return start


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def lines(first: int, until: int) -> bytes:
    return b"".join(b"%08d the quick brown fox\r\n" % number for number in range(first, until))


def test_lines_arrive_while_they_are_written_and_it_ends_with_its_input(
    logs_url: str, start: Start, pipe: Path, read_back: Callable[[str], bytes], tmp_path: Path
) -> None:
    process = start(logs_url, f"< {pipe}")
    with pipe.open("wb", buffering=0) as writer:
        writer.write(lines(0, 10))
        wait_until("they arrive", lambda: read_back(logs_url) == lines(0, 10), 40, [process])
        writer.write(lines(10, 200_000) + b"\n\0\xff\xfe\nunfinished")

    assert process.wait(90) == 0, process.last_words()

    assert read_back(logs_url) == lines(0, 200_000) + b"\n\0\xff\xfe\nunfinished\n"
    saved = json.loads((tmp_path / "state/web01/positions.json").read_bytes())
    assert saved["files"] == {}


async def test_its_blocks_name_no_file_and_follow_each_other(
    logs_url: str, start: Start, pipe: Path, stream: Callable[[], Any]
) -> None:
    process = start(logs_url, f"< {pipe}", "--exclude-lines", "[13579] the")
    with pipe.open("wb", buffering=0) as writer:
        writer.write(lines(0, 5000))
    assert process.wait(90) == 0, process.last_words()

    found = [one for one in await stream() if one.origin.span]

    even = [b"%08d the quick brown fox\r\n" % number for number in range(0, 5000, 2)]
    assert b"".join(one.lines for one in found) == b"".join(even)
    assert {(one.origin.file, one.origin.identity) for one in found} == {("-", None)}
    ends = [0, *(one.origin.span.end for one in found)]
    assert [one.origin.span.start for one in found] == ends[:-1]


@pytest.mark.parametrize("content", [b"", lines(0, 100_000), b"no newline"])
def test_a_file_that_is_redirected_is_read_to_its_end(
    logs_url: str,
    start: Start,
    tmp_path: Path,
    read_back: Callable[[str], bytes],
    content: bytes,
) -> None:
    (tmp_path / "redirected").write_bytes(content)

    process = start(logs_url, f"< {tmp_path / 'redirected'}", "--once")

    assert process.wait(90) == 0, process.last_words()
    assert read_back(logs_url).removesuffix(b"\n") == content.removesuffix(b"\n")


def waiting_in(pipe: IO[bytes]) -> int:
    """Return how many bytes of a pipe nobody has read yet."""
    answer = fcntl.ioctl(pipe.fileno(), termios.FIONREAD, struct.pack("i", 0))
    return int(struct.unpack("i", answer)[0])


def test_sigterm_ships_what_was_read_and_does_not_wait_for_the_writer(
    logs_url: str, start: Start, pipe: Path, read_back: Callable[[str], bytes]
) -> None:
    process = start(logs_url, f"< {pipe}")
    with pipe.open("wb", buffering=0) as writer:
        writer.write(b"one\n")
        wait_until("it arrives", lambda: read_back(logs_url) == b"one\n", 40, [process])
        writer.write(b"two\nthr")
        wait_until("it is read", lambda: waiting_in(writer) == 0, 40, [process])
        began = time.monotonic()

        assert process.stop(10) == 0, process.last_words()

    assert time.monotonic() - began < 8
    assert read_back(logs_url) == b"one\ntwo\nthr\n"


def test_a_broker_that_comes_back_gets_every_line_once_and_the_writer_waits_meanwhile(
    own_server: Any,
    start: Start,
    pipe: Path,
    apply_logs: Callable[[str], None],
    read_back: Callable[[str], bytes],
) -> None:
    apply_logs(own_server.url)
    process = start(own_server.url, f"< {pipe}")
    with pipe.open("wb", buffering=0) as writer:
        writer.write(lines(0, 1000))
        wait_until("ships", lambda: len(read_back(own_server.url)) > 0, 40, [process])
        own_server.stop()
        os.set_blocking(writer.fileno(), False)
        sent, written = memoryview(lines(1000, 400_000)), 0
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            written += writer.write(sent[written : written + 65536]) or 0
            time.sleep(0.001)
        assert written < 8 * 1024 * 1024 < len(sent)
        own_server.start()
        os.set_blocking(writer.fileno(), True)
        while written < len(sent):
            written += writer.write(sent[written:]) or 0

    assert process.wait(180) == 0, process.last_words()
    assert read_back(own_server.url) == lines(0, 400_000)


def test_lines_that_no_broker_takes_before_the_end_are_said_to_be_lost(
    own_server: Any, start: Start, pipe: Path, apply_logs: Callable[[str], None]
) -> None:
    apply_logs(own_server.url)
    process = start(own_server.url, f"< {pipe}")
    with pipe.open("wb", buffering=0) as writer:
        wait_until("ships", lambda: "ships on" in process.said(), 40, [process])
        own_server.stop()
        writer.write(b"one\n")
        wait_until("it is read", lambda: waiting_in(writer) == 0, 40, [process])
        began = time.monotonic()

        assert process.stop(12) == 1

    assert time.monotonic() - began < 10
    assert "the rest is lost" in process.said()
    assert "Traceback" not in process.said()


def test_a_second_shipper_of_the_host_ends_it_and_what_is_lost_is_said(
    logs_url: str, start: Start, pipe: Path, read_back: Callable[[str], bytes]
) -> None:
    first = start(logs_url, f"< {pipe}")
    with pipe.open("wb", buffering=0) as writer:
        writer.write(b"one\n")
        wait_until("it arrives", lambda: read_back(logs_url) == b"one\n", 40, [first])
        second = start(logs_url, "< /dev/null", "--take-over")
        assert second.wait(60) == 0, second.last_words()

        writer.write(b"two\n")

        assert first.wait(60) == 78, first.last_words()
    assert "not acknowledged are lost" in first.said()
    assert read_back(logs_url) == b"one\n"


@pytest.mark.parametrize(
    ("redirection", "options", "code", "words"),
    [
        pytest.param("<&-", [], 2, "standard input is closed", id="closed"),
        pytest.param("< /dev/null", [], 0, "", id="nothing"),
        pytest.param("", ["--file", "a.log"], 2, "cannot be combined", id="with a file"),
        pytest.param("", ["--file", "-"], 2, "cannot be combined", id="twice"),
    ],
)
def test_an_input_that_gives_nothing_is_an_end_and_one_that_cannot_is_said(
    logs_url: str, start: Start, redirection: str, options: list[str], code: int, words: str
) -> None:
    process = start(logs_url, redirection, *options)

    assert process.wait(60) == code, process.last_words()
    assert words in process.said()
    assert "Traceback" not in process.said()
