"""The real program with files and a broker: ended, killed, fenced; no line lost or repeated."""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from nats_logship.client.connection import Connection
from nats_logship.wire.subjects import Subject
from shipper.sources.notices import Notice, NoticeKind, log_notices
from tests.chaos.shim import Shim, have_compiler
from tests.conftest import apply_topology
from tests.descriptors import held_by
from tests.shipper.conftest import read_lines, read_stream, received, wait_for_lines
from tests.shipper.logs import Ship, append, lines, rotate, wait_for_log
from tests.shipper.saved import put, saved
from tests.support.processes import Process
from tests.support.suite import ask

pytestmark = pytest.mark.nats


@pytest.mark.parametrize("options", [(), ("--no-ack",)], ids=["acknowledged", "not acknowledged"])
def test_once_ships_existing_lines_and_ships_them_once(
    logs_url: str, ship: Ship, tmp_path: Path, options: Sequence[str]
) -> None:
    log = tmp_path / "a.log"
    append(log, lines(0, 50_000) + b"unfinished")

    first, _ = (log_of(ship(logs_url, "--file", log, "--once", *options), 0) for _ in range(2))

    assert read_lines(logs_url) == lines(0, 50_000)
    assert "10 bytes of an unfinished last line" in first


ODD = ("--exclude-lines", "[02468] the", "--no-watch")


@pytest.mark.parametrize(("step", "more"), [(1, ()), (2, ODD)], ids=["all", "odd ones, polled"])
def test_kills_rotations_and_damaged_snapshots_leave_no_gap_between_filtered_lines(
    logs_url: str, ship: Ship, tmp_path: Path, step: int, more: Sequence[str]
) -> None:
    log = tmp_path / "a.log"
    append(log, lines(0, 1000))
    process = ship(logs_url, "--file", log, "--poll-every", "50ms", "--grace", "1s", *more)
    wait_for_lines(logs_url, lines(step - 1, 1000, step), process)
    for end, cut in (2000, None), (3000, 0), (4000, -7):
        process.kill()
        if cut is not None:
            ask(logs_url, partial(put, value=(ask(logs_url, saved) or b"")[:cut] or None))
        append(log, lines(end - 1000, end - 500))
        rotate(log)
        append(log, lines(end - 500, end))
        process.start()
        wait_for_lines(logs_url, lines(step - 1, end, step), process)

    assert received(logs_url) == lines(step - 1, 4000, step)  # without a gap between them
    assert process.read_log().count("cannot be read: ") == 1  # the damaged snapshot
    assert "Traceback" not in process.read_log()
    assert ("anon_inode:inotify" in held_by(process.pid)) == ("--no-watch" not in more)
    assert process.stop(10) == 0


@pytest.mark.parametrize(("lost", "level"), [(0, "INFO"), (4, "WARNING")])
def test_a_deleted_file_is_a_warning_only_if_bytes_were_not_read(
    caplog: pytest.LogCaptureFixture, lost: int, level: str
) -> None:
    caplog.set_level("INFO")
    log_notices([Notice(NoticeKind.GONE, "a.log", "is gone", lost)])
    assert [record.levelname for record in caplog.records] == [level]


async def test_another_client_that_publishes_without_pause_blocks_no_line(
    connection: Connection, logs_url: str, ship: Ship, tmp_path: Path
) -> None:
    log, subject = tmp_path / "a.log", str(Subject.for_host("web01", 2))
    log.touch()

    async def flood() -> None:
        client = await connection.client()
        while True:
            await client.publish(subject, b"not ours\n")
            await asyncio.sleep(0.01)

    async def ours() -> bytes:
        found = await read_stream(connection)
        return b"".join(message.lines for message in found if message.origin)

    shipper, flooding = ship(logs_url, "--file", log), asyncio.create_task(flood())
    with log.open("ab", buffering=0) as file:
        for number in range(8):
            file.write(b"%d\n" % number)
            async with asyncio.timeout(40):
                # the stream sets no event
                while not (got := await ours()).endswith(b"%d\n" % number):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
    flooding.cancel()

    assert got == b"".join(b"%d\n" % number for number in range(8))
    assert "another client (no agent) published to" in shipper.read_log()
    assert await asyncio.to_thread(shipper.stop, 12) == 0


def test_once_ships_files_of_one_glob_and_fails_for_a_glob_without_files(
    logs_url: str, ship: Ship, tmp_path: Path
) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    nothing = tmp_path / "*.txt"

    process = ship(logs_url, "--once", "--file", nothing, "--file", tmp_path / "*.log")

    assert f"{nothing}: matches no file yet; check --file" in log_of(process, 1)
    assert read_lines(logs_url) == b"one\n"


@pytest.mark.parametrize(
    ("braces", "code"), [("{shop,pay}_*.log", 0), ("{pay,bill}_*.log", 1), ("{shop_1,pay}.log", 1)]
)
def test_once_needs_one_match_for_alternatives_that_are_globs(
    logs_url: str, ship: Ship, tmp_path: Path, braces: str, code: int
) -> None:
    for name in ("shop_1.log", "other.log"):
        (tmp_path / name).write_bytes(b"one\n")

    process = ship(
        logs_url, "--once", "--file", tmp_path / braces, "--file", tmp_path / "other.log"
    )

    assert ("; check --file" in log_of(process, code)) is (code == 1)


def test_a_second_agent_of_the_host_ends_and_agents_of_other_hosts_start(
    logs_url: str, second_url: str, ship: Ship, tmp_path: Path
) -> None:
    apply_topology(second_url)
    log, missing = tmp_path / "a.log", tmp_path / "missing/x.log"
    log.write_bytes(b"one\n")
    first = ship(logs_url, "--file", log)
    wait_for_lines(logs_url, b"one\n", first)

    follows, once = ship(logs_url, "--file", log), ship(logs_url, "--file", log, "--once")
    mistyped = ship(logs_url, "--file", log, "--file", missing, "--once", "--take-over")
    at_another = ship(second_url, "--file", log, "--once")

    refusal = (
        f"logshipper: another shipper (pid {first.pid}) already ships for web01 on this machine; "
        "stop it, or use --take-over"
    )
    assert [log_of(process, 1) for process in (follows, once)] == [refusal] * 2
    assert f"{missing}: is not there yet; nothing was" in log_of(mistyped, 1)
    log_of(at_another, 0)
    append(log, b"two\n")
    wait_for_lines(logs_url, b"one\ntwo\n", first)
    log_of(ship(logs_url, "--file", log, "--once", host="web02"), 0)
    assert first.stop(12) == 0


def log_of(process: Process, code: int) -> str:
    """Return the log of a program, which ends with this code."""
    assert process.wait(60) == code, process.last_output()
    return process.read_log()


@pytest.mark.skipif(not have_compiler(), reason="no C compiler: the clock of a program is not set")
def test_a_clock_that_is_set_ahead_lets_no_line_go_before_those_of_a_rotated_file(
    logs_url: str, ship: Ship, log: Path, tmp_path: Path
) -> None:
    shim, last = Shim(tmp_path / "shim"), tmp_path / "last.log"
    agent = ship(
        *(logs_url, "--file", log, "--file", last, "--grace", "5m"),
        environment=shim.environment("shipper"),
        redirection="< /dev/null",  # a fork would not be under the shim
    )
    wait_for_lines(logs_url, b"one\n", agent)
    append(log, b"unfin")
    rotate(log)
    append(log, b"three\n")
    wait_for_log(agent, f"{log}: is now {log}.1")

    shim.control("shipper").step(86_400)
    append(last, b"two\n")
    wait_for_lines(logs_url, b"one\ntwo\n", agent)
    append(log.with_name("a.log.1"), b"ished\n")

    wait_for_lines(logs_url, b"one\ntwo\nunfinished\nthree\n", agent)
