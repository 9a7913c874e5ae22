"""`logreceiver offsets`: what it shows, asks, refuses and changes."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nats_logship.app.exits import Exit, OperatorError
from nats_logship.client import background
from nats_logship.client.connection import Connection
from receiver.cli import logreceiver
from receiver.consume.claim import Claim
from receiver.driver.standby import ReceiverPresence
from tests.partitions import add_subjects
from tests.receiver.partition import Partition
from tests.support.hostile import GARBAGE, GOOD, acts_on_a_terminal
from tests.support.suite import ask

pytestmark = pytest.mark.nats

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def offsets(partition: Partition, *arguments: str) -> Result:
    return CliRunner().invoke(logreceiver, ["offsets", *arguments, "--server", partition.url])


def shown(partition: Partition) -> list[dict[str, Any]]:
    return list(json.loads(offsets(partition, "show", "--json").output)["partitions"])


def set_to(partition: Partition, to: str, *options: str) -> Result:
    return offsets(partition, "set", "--partition", "0", f"--to={to}", "--yes", *options)


@contextlib.contextmanager
def running(partition: Partition, answer: bytes = b"host:1") -> Iterator[None]:
    """Have somebody own the partition who answers."""
    connection = Connection([partition.url], "owner")

    async def begin() -> None:
        presence = ReceiverPresence(connection, lambda _: answer)
        await presence.start()
        await Claim(connection, 0, "host:1", "LOGS", presence=presence.address).claim(NOW)

    background.wait(begin(), 10)
    try:
        yield
    finally:
        background.wait(connection.close(), 10)


def test_offsets_are_shown_and_not_moved_without_a_yes(partition: Partition) -> None:
    partition.lines("web01", b"1", b"2")
    partition.start()
    partition.lines("web01", b"3")

    first, second = shown(partition)
    table = offsets(partition, "show").output
    asked = offsets(partition, "set", "--partition", "0", "--to", "1")

    assert (first["offset"], first["behind"]) == (3, 1)
    assert (second["owner"], second["running"]) == ("", False)
    assert "nobody yet" in table
    assert "from sequence 3 to 1, 3 messages wait from there" in asked.output
    assert asked.exit_code == Exit.USAGE
    assert "nothing was changed" in asked.output
    assert partition.take_over().next == 3


@pytest.mark.parametrize("chosen", ["5", "all"])
def test_a_partition_that_hosts_have_left_is_moved_and_adopted(
    partition: Partition, tmp_path: Path, chosen: str
) -> None:
    ask(partition.url, lambda connection: add_subjects(connection, "logs.p5.>"))
    left = replace(partition, number=5)
    left.lines("web01", b"1", b"2")
    left.start()

    moved = offsets(partition, "set", "--partition", chosen, "--to=1", "--yes", "--force")
    (other := tmp_path / "other").mkdir()
    adopted = offsets(partition, "adopt", "--partition", "5", f"--output={other}", "--yes")

    assert "partition 5: from sequence 3 to 1" in moved.output
    assert "partition 5: 0 files adopted" in adopted.output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as another user")
def test_a_store_that_root_adopts_is_the_receiver_s(partition: Partition) -> None:
    partition.lines("web01", b"1", b"2")
    partition.start()
    with tempfile.TemporaryDirectory() as output:  # which others than root reach
        os.chown(output, 12345, 12346)
        adopted = offsets(partition, "adopt", "--partition", "0", "--output", output, "--yes")

        assert "0 files adopted" in adopted.output
        made = [*Path(output).rglob("*")]
        assert {path.name for path in made} >= {".logreceiver", "p0.db", "p0.lock"}
        assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(12345, 12346)}
    assert os.geteuid() == os.getegid() == 0


def test_an_offset_is_moved_to_a_time(partition: Partition) -> None:
    partition.lines("web01", b"1", b"2")
    now = datetime.now(UTC).isoformat()  # noqa: TID251 - a place behind all that was stored

    for to, next_ in (("2020-01-01T00:00+01:00", 1), (now, 3)):
        set_to(partition, to)
        assert partition.take_over().next == next_


@pytest.mark.parametrize("to", ["4", "-1", "soon", "2999-01-01"])
def test_a_wrong_target_is_refused(partition: Partition, to: str) -> None:
    partition.lines("web01", b"1", b"2")

    refused = set_to(partition, to).exception

    assert isinstance(refused, OperatorError)
    assert "--to" in str(refused)


def test_moving_the_offset_of_a_running_receiver_needs_force(partition: Partition) -> None:
    partition.lines("web01", b"1")
    with running(partition):
        is_running = shown(partition)[0]["running"]
        refused, forced = set_to(partition, "latest"), set_to(partition, "latest", "--force")

    assert is_running is True
    assert "is running" in str(refused.exception)
    assert forced.exit_code == 0, forced.output
    assert partition.take_over().next == 2


@pytest.mark.parametrize("value", GARBAGE.values(), ids=GARBAGE)
def test_an_unreadable_offset_is_shown_and_can_be_set(partition: Partition, value: bytes) -> None:
    async def write(connection: Connection) -> None:
        await connection.ask("$KV.LOGS_OFFSETS.p0", value)
        await connection.ask("$KV.LOGS_OFFSETS.p1", GOOD.encode())

    partition.ask(write)

    for words in (("offsets", "show"), ("status",)):
        table = CliRunner().invoke(logreceiver, [*words, "--server", partition.url])
        report = CliRunner().invoke(logreceiver, [*words, "--json", "--server", partition.url])

        assert (table.exit_code, report.exit_code) == (0, 0), table.exception or report.exception
        broken, good = json.loads(report.output)["partitions"]
        assert (broken["owner"], broken["offset"], bool(broken["error"])) == ("", 0, True)
        assert (good["owner"], good["offset"], good["error"]) == ("central:1", 2, None)
        for part in ("UNREADABLE", "partition 0 cannot be received", "central:1"):
            assert part in table.output
        assert not acts_on_a_terminal(table.output)

    mended = set_to(partition, "latest")
    assert mended.exit_code == 0, mended.output
    assert partition.take_over().next == 1


ANSWERS = {
    "nested": b"[" * 100_000,
    "types": b'{"0": {"lines_per_second": "x", "gaps": [], "blocked": 7}}',
    "parts": b'{"0": {"lines_per_second": 1e999, "blocked": {"cause": "\\u001b[2J"}}}',
    "codes": b'{"0": {"blocked": {"cause": "\\u001b", "detail": "\\u009b", "since": ""}}}',
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_no_answer_of_an_owner_ends_a_status(partition: Partition, answer: bytes) -> None:
    with running(partition, answer):
        shown = CliRunner().invoke(logreceiver, ["status", "--server", partition.url])

    assert shown.exit_code == 0, shown.exception
    assert "host:1" in shown.output
    assert not acts_on_a_terminal(shown.output)
