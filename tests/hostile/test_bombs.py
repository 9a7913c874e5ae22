"""Small messages that hold much: they fill no disk, and logs of identical lines still come."""

import time
from pathlib import Path

import pytest
import zstandard

from nats_logship.wire.message import ALWAYS_BYTES, MAX_LINES_BYTES, MAX_RATIO
from receiver.consume.assignment import SessionLimits
from tests.receiver.partition import Message, Partition
from tests.support.commands import run_command

pytestmark = pytest.mark.nats

STAY = SessionLimits(longest=300, silence=2.0)


def bomb(size: int) -> Message:
    """Return a message with so many bytes in a frame as small as can be."""
    headers = {"Content-Encoding": "zstd"}
    return "logs.p0.evil", zstandard.ZstdCompressor(level=19).compress(bytes(size)), headers


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("size", "count"), [(MAX_LINES_BYTES, 50), (1024 * 1024, 300), (ALWAYS_BYTES + 1, 300)]
)
def test_bombs_are_quarantined_unread_and_hold_nobody_up(
    partition: Partition, size: int, count: int
) -> None:
    partition.publish(*[bomb(size)] * count)
    partition.lines("web01", b"the line of another host")
    began = time.process_time()

    report = partition.session(STAY)

    assert time.process_time() - began < 10
    assert (report.done.lines, report.done.quarantined) == (1, count)
    assert partition.files() == {"web01.log": b"the line of another host\n"}
    assert size_of(partition.output) < 1_000 * count
    (about, payload), *_ = partition.set_aside()
    assert payload == bomb(size)[1]
    assert f"more than {MAX_RATIO} times as many" in about["reason"]


def test_what_small_messages_become_is_bounded_by_what_was_sent(partition: Partition) -> None:
    message = bomb(ALWAYS_BYTES)
    partition.publish(*[message] * 300)

    report = partition.session(STAY)

    assert report.done.quarantined == 0
    headers = 100  # bytes of a message beside its payload, at the least
    sent = 300 * (headers + len(message[1]))
    assert size_of(partition.output) < MAX_RATIO * sent


@pytest.mark.parametrize("line", [b"y\n", b"\n", b"\0" * 1000 + b"\n", b"the same line of a log\n"])
def test_a_shipper_of_identical_lines_is_received(
    partition: Partition, tmp_path: Path, line: bytes
) -> None:
    host = "web01"  # of partition 0
    log, lines = tmp_path / "yes.log", line * (5_000_000 // len(line))
    log.write_bytes(lines)
    here = ["--server", partition.url, "--host", host, "--once"]

    run_command("logshipper", *here, "--file", log)
    report = partition.session(STAY)

    assert (report.done.quarantined, report.done.anomalies) == (0, ())
    assert partition.read(host) == lines
