"""The real program joins lines to records: long ones, killed, filtered, reloaded, given badly."""

from itertools import groupby
from pathlib import Path

import pytest

from tests.shipper.conftest import read_lines, read_stream, wait_for_lines
from tests.shipper.logs import Ship, append, wait_for_log
from tests.support.processes import wait_until
from tests.support.suite import ask

pytestmark = pytest.mark.nats

TRACE = b"1 ERROR failed\nTraceback (most recent call last):\nValueError: %d\n"


def test_once_ships_whole_records_that_match_and_waits_for_the_last_one(
    logs_url: str, ship: Ship, tmp_path: Path
) -> None:
    log = tmp_path / "a.log"
    append(log, b"1 INFO fine\n" + TRACE % 1 + b"1 INFO fine\n" + TRACE % 2 + b"unfinished")
    how = ("--records", "python", "--include-lines", "^ValueError", "--record-timeout", "100ms")

    process = ship(logs_url, "--file", log, "--once", *how)

    assert process.wait(60) == 0, process.last_output()
    assert read_lines(logs_url) == TRACE % 1 + TRACE % 2


@pytest.mark.parametrize("point", ["gathered", "sending", "stored", "advanced"])
def test_after_kills_inside_a_long_record_no_other_line_is_between_its_pieces(
    logs_url: str, ship: Ship, tmp_path: Path, point: str
) -> None:
    long = b"1 long\n" + b"".join(b" %d %b\n" % (n, b"x" * 100) for n in range(80_000))
    for name in ("a.log", "b.log", "c.log"):
        append(tmp_path / name, name.encode() + b"\n" + b"2 short\n" * 1000)
    append(tmp_path / "b.log", long + b"3 next\n" * 1000)
    (faults := tmp_path / "faults").mkdir()
    process = ship(
        *(logs_url, "--file", tmp_path / "*.log", "--record-start", "^[0-9a]"),
        *("--record-lines", 100_000, "--record-timeout", "1s", "--round-size", "1MiB"),
        environment={"LOGSHIP_FAULTS": str(faults)},
    )
    for _ in range(4):
        (faults / point).touch()
        wait_until("the agent is killed", lambda: not process.is_running(), 40)
        append(tmp_path / "a.log", b"4 meanwhile\n" * 100)
        process.start()

    size = sum(path.stat().st_size for path in tmp_path.glob("*.log"))
    wait_until("all is shipped", lambda: len(read_lines(logs_url)) >= size, 60, [process])
    shipped = read_lines(logs_url)
    assert len(shipped) == size
    assert shipped.count(long) == 1
    assert process.stop(10) == 0


@pytest.mark.parametrize("name", ["a.log", "pipe"])
def test_a_reload_joins_other_lines_and_loses_none(
    logs_url: str, ship: Ship, pipe: Path, tmp_path: Path, name: str
) -> None:
    config, log = tmp_path / "shipper.toml", tmp_path / name
    given = f'file = ["{log}"]\nstate_dir = "{tmp_path / "state"}"\n'
    config.write_text(given)
    process = ship(logs_url, "--config", config)
    wait_for_log(process, "ships on")
    written = b""

    def has_reloaded() -> bool:
        return process.read_log().count("settings reloaded") == written.count(b"b\n") // 2 + 1

    for start in ("^a", "^b", "^a"):
        config.write_text(f'{given}record_start = "{start}"\nrecord_timeout = "200ms"\n')
        process.hang_up()
        wait_until("it has reloaded", has_reloaded, 40, [process])
        append(log, b"a\n b\nb\n a\n")
        written += b"a\n b\nb\n a\n"
        wait_for_lines(logs_url, written, process)
    assert process.stop(10) == 0
    blocks = [block for message in ask(logs_url, read_stream) for block in message.blocks]
    assert [key for key, _ in groupby(one.section.records for one in blocks if one.lines)] == [
        *("start:^a", "start:^b", "start:^a")
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--record-start", "("), "--record-start: '(' is not a regular expression of RE2"),
        (("--record-start", "a*"), "--record-start: 'a*' matches an empty line"),
        (("--record-start", "a{1000}b{1000}"), "--record-start: 'a{1000}b{1000}' is too large"),
        (("--record-start", "a" * 1025), "--record-start: the expression has more than 1016 bytes"),
        (("--record-start", "^a", "--records", "go"), "--records and --record-start both say"),
        (("--records", "perl"), "--records: 'perl': input should be 'python', 'java'"),
        (("--record-timeout", "0"), "--record-timeout: Input should be greater than 0 seconds"),
        (("--record-lines", "1"), "--record-lines: '1' must be at least 2"),
    ],
)
def test_bad_records_are_one_clear_line(
    logs_url: str, ship: Ship, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    process = ship(logs_url, "--file", tmp_path / "a.log", *options)

    assert process.wait(60) == 2
    (line,) = process.read_log().splitlines()
    assert line.startswith(f"logshipper: {message}")
