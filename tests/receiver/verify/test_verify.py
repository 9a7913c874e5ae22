"""Received files are damaged: each damage is found, with the first byte and the lines."""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import zstandard

from nats_logship.app.exits import Exit
from nats_logship.client import background
from receiver.consume.assignment import SessionLimits
from receiver.settings import StreamSettings
from receiver.storage.layout import DEFAULT
from receiver.verify.report import DifferingFile, VerifyReport
from receiver.verify.verify import verify
from tests.receiver.partition import Partition, ours
from tests.receiver.points import IN_BATCH, IN_UNDO
from tests.receiver.replay.test_replay import publish_odd_messages
from tests.support import forks
from tests.support.received import read_segment

pytestmark = pytest.mark.nats

LINES = [b"line %03d of a log that is long enough\n" % n for n in range(60)]
PACKED: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstandard.compress}
Change = Callable[[list[bytes]], list[bytes]]
DAMAGES: dict[str, tuple[Change, int | None]] = {
    "a line removed": (lambda ls: ls[:3] + ls[4:], -1),
    "a line doubled": (lambda ls: ls[:4] + ls[3:], 1),
    "swapped": (lambda ls: [*ls[:3], ls[4], ls[3], *ls[5:]], 0),
    "a byte": (lambda ls: [*ls[:3], b"x" + ls[3][1:], *ls[4:]], 0),
    "the tail cut": (lambda ls: [*ls[:-1], ls[-1][:-5]], -1),
    "all of it gone": (lambda _: [], None),
}
"""What is done to the lines of a file, and how many more there are then, None for none at all."""


@pytest.fixture
def partition(partition: Partition) -> Partition:
    return replace(partition, rotate_size=600)


def received(partition: Partition) -> None:
    """Publish the lines of two hosts and receive them."""
    size = len(LINES[0])
    partition.publish(
        *(ours("web01", "app.log", n * size, line) for n, line in enumerate(LINES)),
        *(("logs.p0.web02", b"other %d" % n, None) for n in range(6)),
    )
    partition.receive()


def examined(partition: Partition) -> VerifyReport:
    folders = {"output": partition.output, "state_dir": partition.state}
    chosen = {"partition": ("0",), "since": "earliest", "path_template": partition.template}
    return verify(StreamSettings(server=(partition.url,), **folders, **chosen))


def the_report(partition: Partition) -> DifferingFile:
    (report,) = examined(partition).files
    assert report.host == "web01"
    return report


def segment(partition: Partition, number: int) -> Path:
    return partition.output / f"web01.log.{number:06d}"


def edit(path: Path, change: Change) -> None:
    lines = read_segment(path).splitlines(keepends=True)
    path.write_bytes(PACKED.get(path.suffix, bytes)(b"".join(change(lines))))


@pytest.mark.parametrize("name", ["web01.log", "web01.log.000002", "web01.log.000001.gz"])
def test_a_damage_is_found_with_its_first_byte_and_lines_are_counted(
    partition: Partition, name: str, subtests: pytest.Subtests
) -> None:
    received(partition)
    for number, suffix in ((1, ".gz"), (3, ".zst")):
        path = segment(partition, number)
        path.with_name(path.name + suffix).write_bytes(PACKED[suffix](path.read_bytes()))
        path.unlink()
    assert examined(partition).is_well
    path = partition.output / name
    kept, before = path.read_bytes(), read_segment(path)

    for what, (change, lines) in DAMAGES.items():
        with subtests.test(what):
            path.write_bytes(kept)
            edit(path, change)
            report, after = the_report(partition), read_segment(path)

            whole = zip(before, after, strict=False)
            at = next((n for n, (one, other) in enumerate(whole) if one != other), len(after))
            more = -before.count(b"\n") if lines is None else lines
            if name == "web01.log":  # read only as far as its committed length
                more = min(more, 0)
            number = before[:at].count(b"\n") + 1
            place = name.removesuffix(".gz"), number, at
            assert (report.path, report.line, report.byte) == place
            assert (report.expected, report.received) == (len(LINES), len(LINES) + more)
            read = after[: len(before)] if name == "web01.log" else after
            ours, theirs = (Counter(one.split(b"\n")[:-1]) for one in (before, read))
            same = len(LINES) - before.count(b"\n") + (ours & theirs).total()
            assert report.same == same


def test_a_segment_that_is_gone_is_named_unless_retention_removed_it(partition: Partition) -> None:
    received(partition)
    gone = len(segment(partition, 1).read_bytes().splitlines())
    segment(partition, 1).unlink()
    without_one = the_report(partition)
    partition.sql("DELETE FROM segments WHERE number = 1")  # as retention does
    whole = examined(partition)
    edit(partition.output / "web01.log", lambda lines: [*lines[:-1], b"x" + lines[-1][1:]])

    report = the_report(partition)

    place = without_one.path, without_one.line, without_one.byte
    assert place == ("web01.log.000001", 1, 0)
    assert without_one.same == len(LINES) - gone
    assert without_one.received == len(LINES) - gone
    assert whole.is_well
    assert report.expected == report.received == len(LINES) - gone


def test_messages_purged_while_they_are_read_are_no_difference(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition.lines("web01", *(b"%d" % n + bytes(3_000_000) for n in range(6)))
    partition.receive()
    connection = background.connection((partition.url,))
    publish, requests = connection.publish, count(1)

    async def purge_and_publish(subject: str, *rest: Any, **more: Any) -> None:
        if "DIRECT.GET.LOGS" in subject and next(requests) == 2:  # it has asked for 8 MiB before
            await connection.api("STREAM.PURGE.LOGS", {"seq": 5})
        await publish(subject, *rest, **more)

    monkeypatch.setattr(connection, "publish", purge_and_publish)

    report = examined(partition)

    assert report.is_well, report.as_text()
    assert next(requests) > 2


def test_lines_behind_the_offset_are_not_compared(partition: Partition) -> None:
    received(partition)
    more = b"line of a batch under way\n"
    end = sum(map(len, LINES))
    partition.publish(*(ours("web01", "app.log", at, more) for at in (end, end + len(more))))
    live = partition.output / "web01.log"
    whole = live.read_bytes()

    for written in (b"", more, more + more[:7], more + more):
        live.write_bytes(whole + written)

        assert examined(partition).files == []


@pytest.mark.parametrize(
    "points", [*((point,) for point in IN_BATCH), *(("stored", point) for point in IN_UNDO)]
)
def test_files_of_a_killed_receiver_are_no_difference(
    partition: Partition, points: tuple[str, ...]
) -> None:
    received(partition)
    size = sum(map(len, LINES))
    more = [ours("web01", "app.log", size + 10 * n, b"line %04d\n" % n) for n in range(100)]
    partition.publish(*more)
    until = partition.offset().next
    for point in points:
        assert partition.run_apart(until, fault=point, pull=4000, session=SessionLimits(60.0)) == -9

    report = examined(partition)

    assert report.is_well, report.as_text()


@pytest.mark.parametrize("template", [DEFAULT, "{host}/{date}/{file}"])
def test_odd_messages_are_expected_as_written(partition: Partition, template: str) -> None:
    partition = replace(partition, template=template)
    publish_odd_messages(partition)
    partition.receive()

    well = examined(partition)
    line = b"after a gap\n"
    (name,) = (name for name, content in partition.files().items() if line in content)
    edit(partition.output / name, lambda lines: [one for one in lines if one != line])
    damaged = examined(partition)

    assert (well.hosts, well.files) == (2, [])
    (report,) = damaged.files
    assert report.live == name
    assert report.path == name
    assert report.expected - report.received == 1


CHANGES: dict[Callable[[bytes], bytes], tuple[str, str]] = {
    lambda whole: whole.replace(b"0013", b"0x13"): (
        "19 of 20 lines the same, 1 different",
        "line 5, byte 46",
    ),
    lambda whole: whole.replace(b"0013\nline 0016", b"0016\nline 0013"): (
        "all 20 lines are there, but in another order",
        "line 5, byte 48",
    ),
    lambda whole: whole[:-7]: ("19 of 20 lines the same, 1 missing", "line 20, byte 193"),
    lambda whole: b"\n" * len(whole): (
        "0 of 20 lines the same, 20 different, 180 too many",
        "line 1, byte 0",
    ),
}


def test_the_program_reports_damage_and_another_stream(partition: Partition) -> None:
    partition.publish(
        *(ours(f"web{n % 3}", "app.log", 10 * (n // 3), b"line %04d\n" % n) for n in range(60))
    )
    partition.receive()
    folders = ("--output", partition.output, "--state-dir", partition.state)
    program = partial(forks.run, "logreceiver", "verify", "--server", partition.url, *folders)

    well = program()
    path = partition.output / "web1.log"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"line 0013\n", b"", 1))
    damaged, text = program("--json"), program().stdout.splitlines()
    texts = []
    for change in CHANGES:
        path.write_bytes(change(whole))
        texts.append(program().stdout.splitlines()[0])

    assert well.returncode == Exit.DONE, well.stderr
    assert well.stdout.splitlines() == [
        "all well: 3 hosts, 600 B compared",
        (
            "not compared: partition 1, nothing is here: no host ships to it yet, or another "
            "receiver has it"
        ),
    ]
    assert damaged.returncode == Exit.FAILED
    report = json.loads(damaged.stdout)
    assert (report["well"], report["hosts"], report["unclaimed"]) == (False, 3, [1])
    found = {"partition": 0, "host": "web1", "live": "web1.log", "expected": 20, "received": 19}
    place = {"same": 19, "path": "web1.log", "line": 5, "byte": 48}
    assert report["files"] == [found | place]
    assert text[:2] == [
        (
            "web1.log: 19 of 20 lines the same, 1 missing; first difference in web1.log at line 5, "
            "byte 48"
        ),
        "DIFFERENCES: 3 hosts, 600 B compared",
    ]
    assert texts == [
        f"web1.log: {lines}; first difference in web1.log at {where}"
        for lines, where in CHANGES.values()
    ]
    partition.make_stream_anew()
    of_another = program()
    assert (of_another.returncode, of_another.stdout) == (Exit.CONFIGURATION, "")
    assert "nothing to compare" in of_another.stderr
