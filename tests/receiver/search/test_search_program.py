"""`logreceiver search` as a program: bad input, terminals, readers that stop, Ctrl-C."""

import os
import pty
import select
import signal
import subprocess
from contextlib import suppress

import pytest

from tests.receiver.partition import Partition
from tests.receiver.search.searching import search
from tests.support.processes import installed

pytestmark = pytest.mark.nats


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--match", "("], 2, "'(' is not a regular expression"),
        (["--match", "a(?=b)"], 2, "RE2 has no lookarounds"),
        (["--match", "(((a{99}){9}){9}){9}"], 2, "is not a regular expression"),
        (["--match", r"\pL{50}"], 2, "is too large"),
        (["--match", "[é-à]"], 2, "invalid character class range"),
        (["--since", "soon"], 2, "--since: 'soon' is not a time"),
        (["--until", "seq:7"], 2, "--until: 'seq:7' is a sequence: give a time"),
        (["--since", "1h", "--until", "2h"], 2, "is not after since"),
        (["--level", "loud"], 2, "--level"),
        (["--limit", "0"], 2, "--limit"),
        (["--context", "-1"], 2, "--context"),
        (["--storage-option", "x"], 2, "'x' is no option"),
        (["--no-stream"], 2, "nothing would be searched"),
        (["--table", "t", "--output", "o"], 2, "give --table or --output, not both"),
        (["--no-stream", "--table", "/no/table"], 1, "no table in /no/table; check --table"),
        (["--server", "nats://127.0.0.1:1"], 1, "127.0.0.1:1"),
        (["--server", "nats://127.0.0.1:1", "--output", "/"], 1, "; --no-stream searches the rest"),
    ],
)
def test_bad_input_is_one_clear_line(options: list[str], code: int, message: str) -> None:
    ended = search(*options, code=code)

    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("variable", "option", "code", "message"),
    [
        ("LOGRECEIVER_OUTPUT", "--table", 1, "no table in /no/where"),
        ("LOGRECEIVER_TABLE", "--output", 78, "/no/where/.logreceiver has no store"),
    ],
)
def test_an_option_goes_before_what_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, variable: str, option: str, code: int, message: str
) -> None:
    monkeypatch.setenv(variable, "/tmp")

    ended = search(option, "/no/where", "--no-stream", code=code)

    assert message in ended.stderr
    monkeypatch.setenv("LOGRECEIVER_OUTPUT", "/tmp")
    monkeypatch.setenv("LOGRECEIVER_TABLE", "/tmp")
    assert "not both" in search("--no-stream", code=2).stderr


def on_terminal(*options: str) -> bytes:
    """Run a search whose output and errors are a terminal, and return what that gets."""
    ours, theirs = pty.openpty()
    command = [installed("logreceiver"), "search", *options]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs)
    os.close(theirs)
    got = b""
    with suppress(OSError):  # the end of a terminal
        while part := os.read(ours, 65536):
            got += part
    os.close(ours)
    assert process.wait(60) == 0
    return got


def test_a_terminal_gets_no_control_characters_of_others(partition: Partition) -> None:
    partition.lines("web01", b"\x1b]0;owned\x07\x1b[2J red \xff\n")
    partition.start()
    partition.lines("web01", b"\x9b31m \xc2\x85 next\n")

    folders = "--output", str(partition.output), "--state-dir", str(partition.state)
    got = on_terminal("--server", partition.url, *folders)

    assert rb"web01: \x1b]0;owned\x07\x1b[2J red \xff" in got
    assert rb"\x9b31m \x85 next" in got
    assert b"\x1b[2J" not in got.replace(rb"\x1b[2J", b"")


def test_a_terminal_shows_that_no_line_matches(partition: Partition) -> None:
    day = "2020-01-01T00:00:00Z"

    at = "--server", partition.url, "--since", day
    got = on_terminal(*at, "--until", "2020-01-02", "--match", "x"), on_terminal(*at, "--limit=1")
    ended = search(*at)

    said = f"no line matches between {day} and 2020-01-02T00:00:00Z", f"no line matches since {day}"
    assert got == tuple(f"{one}\r\n".encode() for one in said)
    assert (ended.stdout, ended.stderr) == ("", "")


def test_with_a_beginning_the_first_lines_are_shown_also_from_the_earliest_on(
    partition: Partition,
) -> None:
    partition.lines("web01", b"1\n2\n3\n")
    at = "--server", partition.url, "--limit=1"

    assert search(*at).stdout == "web01: 3\n"
    assert search(*at, "--since", "1h").stdout == "web01: 1\n"
    assert search(*at, "--since", "earliest").stdout == "web01: 1\n"


def test_a_full_disk_ends_a_search_with_one_line(partition: Partition) -> None:
    partition.lines("web01", b"1\n")
    command = [installed("logreceiver"), "search", "--server", partition.url]

    with open("/dev/full", "wb") as full:  # noqa: PTH123 - no file
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)

    assert ended.returncode == 1
    said = "cannot write to standard output: No space left on device"
    assert ended.stderr.decode().splitlines() == [f"logreceiver: {said}"]


def fill(partition: Partition) -> list[str]:
    """Receive more lines than a pipe holds, and return the command that prints all."""
    for _ in range(4):
        partition.lines("web01", b"x" * 100 + b"\n" + b"y\n" * 100_000)
    partition.start()
    folders = "--output", str(partition.output), "--state-dir", str(partition.state)
    return [installed("logreceiver"), "search", "--server", partition.url, *folders]


def test_a_reader_that_has_enough_ends_the_search_quietly(partition: Partition) -> None:
    command = " ".join(fill(partition))
    ended = subprocess.run(
        f"{command} | head -n 1", shell=True, capture_output=True, timeout=60, check=False
    )

    assert (ended.stdout, ended.stderr) == (b"web01: " + b"x" * 100 + b"\n", b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_search_at_once_though_nobody_reads(
    partition: Partition, number: signal.Signals
) -> None:
    process = subprocess.Popen(fill(partition), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    assert process.stderr
    select.select([process.stdout], [], [], 60)  # it has begun to print, and the pipe is full soon
    process.send_signal(number)

    assert process.wait(60) == 128 + number
    assert process.stderr.read() == b""
    process.stdout.close()
    process.stderr.close()
