"""Files that a receiver's tasks wrote, damaged by hand: each damage is found, and counted, with the place of the first."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from broker.app.exits import Exit
from broker.topology import Topology
from receiver.consume import task
from receiver.settings import StreamSettings
from receiver.storage.layout import DEFAULT
from receiver.verify.verify import ComparedFile, VerifyReport, verify
from tests.receiver.partition import Partition, lines_of, message, ours
from tests.receiver.replay.test_replay import publish_odd_messages

pytestmark = pytest.mark.nats

LINES = [b"line %03d of a log that is long enough\n" % n for n in range(60)]


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    return Partition(logs_url, tmp_path, rotate_size=600)


def received(partition: Partition) -> None:
    """Publish the lines of two hosts and receive them."""
    for n, line in enumerate(LINES):
        partition.publish(
            ours("web01", "app.log", sum(map(len, LINES[:n])), line),
            *([("logs.p0.web02", b"other %d" % n, None)] if n % 10 == 0 else []),
        )
    partition.claim()
    partition.receive()


def examined(
    partition: Partition, since: str = "earliest", template: str = DEFAULT
) -> VerifyReport:
    settings = StreamSettings(
        server=(partition.url,),
        output=partition.output,
        state_dir=partition.state,
        partition=("0",),
        since=since,
        path_template=template,
    )
    return verify(settings)


def the_report(partition: Partition) -> ComparedFile:
    (report,) = examined(partition).files
    assert report.host == "web01"
    return report


def segment(partition: Partition, number: int) -> Path:
    return partition.output / f"web01.log.{number:06d}"


def pruned(partition: Partition, number: int) -> None:
    """Remove a segment as retention does."""
    segment(partition, number).unlink()
    partition.sql("DELETE FROM segments WHERE number = ?", number)


def edit(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def test_compressed_segments_are_looked_into(partition: Partition) -> None:
    received(partition)
    for number, (suffix, pack) in enumerate(
        [(".gz", gzip.compress), (".zst", zstandard.ZstdCompressor().compress)], 1
    ):
        path = segment(partition, number)
        path.with_name(path.name + suffix).write_bytes(pack(path.read_bytes()))
        path.unlink()
    whole = examined(partition)
    path = segment(partition, 1).with_name("web01.log.000001.gz")
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"005", b"XXX")))

    assert whole.files == []
    assert the_report(partition).difference.startswith("web01.log.000001 at byte")


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        pytest.param(lambda ls: ls[:3] + ls[4:], -1, id="a line removed"),
        pytest.param(lambda ls: ls[:4] + ls[3:], 1, id="a line doubled"),
        pytest.param(lambda ls: [*ls[:3], ls[4], ls[3], *ls[5:]], 0, id="swapped"),
        pytest.param(lambda ls: [*ls[:3], b"x" + ls[3][1:], *ls[4:]], 0, id="a byte"),
        pytest.param(lambda ls: [*ls[:-1], ls[-1][:-5]], -1, id="the tail cut"),
        pytest.param(lambda _: [], None, id="all of it gone"),
    ],
)
@pytest.mark.parametrize("name", ["web01.log", "web01.log.000002"])
def test_a_damage_is_found_with_its_place_and_lines_are_counted(
    change: Callable[[list[bytes]], list[bytes]],
    lines: int | None,
    name: str,
    partition: Partition,
) -> None:
    received(partition)
    path = partition.output / name
    before = path.read_bytes()

    edit(path, change)

    report, after = the_report(partition), path.read_bytes()
    whole = zip(before, after, strict=False)
    at = next((n for n, (one, other) in enumerate(whole) if one != other), len(after))
    more = -before.count(b"\n") if lines is None else lines
    if name == "web01.log":  # read only as far as its committed length
        more = min(more, 0)
    assert report.difference == f"{name} at byte {at}"
    assert (report.expected, report.received) == (len(LINES), len(LINES) + more)


def test_a_segment_that_is_gone_is_named_and_the_oldest_may_have_been_pruned(
    partition: Partition,
) -> None:
    received(partition)
    gone = len(segment(partition, 1).read_bytes().splitlines())
    kept = segment(partition, 1).read_bytes()
    segment(partition, 1).unlink()
    without_one = the_report(partition)
    segment(partition, 1).write_bytes(kept)
    pruned(partition, 1)
    whole = examined(partition)
    edit(partition.output / "web01.log", lambda lines: [*lines[:-1], b"x" + lines[-1][1:]])

    report = the_report(partition)

    assert without_one.difference == "web01.log.000001 at byte 0"
    assert without_one.received == len(LINES) - gone
    assert whole.is_well
    assert report.expected == report.received == len(LINES) - gone


def test_lines_behind_the_offset_may_be_there_or_half_of_them(partition: Partition) -> None:
    received(partition)
    more = b"line of a batch under way\n"
    partition.publish(
        ours("web01", "app.log", sum(map(len, LINES)), more),
        ours("web01", "app.log", sum(map(len, LINES)) + len(more), more),
    )
    live = partition.output / "web01.log"
    whole = live.read_bytes()

    reports = []
    for written in (b"", more, more + more[:7], more + more):
        live.write_bytes(whole + written)
        reports.append(examined(partition).files)

    assert reports == [[], [], [], []]


def test_odd_messages_are_judged_as_the_receiver_judged_them(partition: Partition) -> None:
    publish_odd_messages(partition)
    partition.claim()
    partition.receive()

    done = examined(partition)

    assert (done.hosts, done.files) == (2, [])


def test_files_of_another_layout_are_found(partition: Partition) -> None:
    template = "{host}/{date}/{file}"
    last = partition.publish(
        *(ours("web01", "app.log", 10 * n, b"line %04d\n" % n) for n in range(4)),
        message(
            "web01",
            *(lines_of("app.log", 10 * n, b"line %04d\n" % n) for n in range(4, 9)),
            lines_of("other.log", 0, b"another file's\n"),
        ),
        ("logs.p0.web01", b"nobody knows of what file", None),
    )
    partition.claim()
    report = task.run(
        partition.assignment(), replace(partition.destination, path_template=template)
    )
    assert report.done.until == last + 1, report

    well = examined(partition, template=template)
    (path,) = partition.output.rglob("app.log")
    path.write_bytes(path.read_bytes().replace(b"line 0004\n", b""))
    damaged = examined(partition, template=template)

    assert (well.hosts, well.files) == (1, [])
    (report,) = damaged.files
    assert report.live == str(path.relative_to(partition.output))
    assert report.difference.startswith(report.live)
    assert report.expected - report.received == 1


def program(partition: Partition, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [
            str(Path(sys.executable).with_name("logreceiver")),
            "verify",
            "--server",
            partition.url,
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_received_files_are_well_until_somebody_damages_them_or_the_stream_is_another(
    logs_url: str, tmp_path: Path
) -> None:
    partition = Partition(logs_url, tmp_path)
    partition.publish(
        *(ours(f"web{n % 3}", "app.log", 10 * (n // 3), b"line %04d\n" % n) for n in range(60))
    )
    partition.claim()
    partition.receive()
    output = ("--output", str(partition.output), "--state-dir", str(partition.state))

    well = program(partition, *output)
    path = partition.output / "web1.log"
    path.write_bytes(path.read_bytes().replace(b"line 0013\n", b"", 1))
    damaged = program(partition, *output, "--json")

    assert (well.returncode, well.stdout) == (
        0,
        "all well: 3 hosts, 600 B compared\nnot compared, as nothing was received here yet: partitions 1\n",
    ), well.stderr
    assert damaged.returncode == Exit.FAILED
    told = json.loads(damaged.stdout)
    assert (told["well"], told["hosts"], told["unclaimed"]) == (False, 3, [1])
    assert told["files"] == [
        {
            **{"partition": 0, "host": "web1", "live": "web1.log"},
            **{"expected": 20, "received": 19, "difference": "web1.log at byte 48"},
        }
    ]
    made = Topology(partitions=2).streams()[0]
    partition.ask(lambda connection: connection.api("STREAM.DELETE.LOGS"))
    partition.ask(lambda connection: connection.api("STREAM.CREATE.LOGS", made))
    of_another = program(partition, *output)
    assert (of_another.returncode, of_another.stdout) == (Exit.CONFIGURATION, "")
    assert "nothing to compare" in of_another.stderr
