"""Files that a receiver's tasks wrote, damaged by hand: each damage is found, and counted, with the place of the first."""

import gzip
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from receiver.consume import task
from receiver.storage.layout import DEFAULT
from receiver.storage.retention import Order, Retention
from receiver.verify.comparison import Counts
from receiver.verify.examination import Examined, FileReport
from receiver.verify.settings import VerifySettings
from receiver.verify.verify import verify
from tests.receiver.partition import Partition, lines_of, message, ours

pytestmark = pytest.mark.nats

LINES = [b"line %03d of a log that is long enough\n" % n for n in range(60)]
ALTERED = Counts(missing=1, unexpected=1)


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    return Partition(logs_url, tmp_path, rotate_size=700)


def received(partition: Partition) -> None:
    """Publish the lines of two hosts and receive them."""
    for n, line in enumerate(LINES):
        partition.publish(
            ours("web01", "app.log", sum(map(len, LINES[:n])), line),
            *([("logs.p0.web02", b"other %d" % n, None)] if n % 10 == 0 else []),
        )
    partition.claim()
    partition.receive()


def examined(partition: Partition, since: str = "earliest", template: str = DEFAULT) -> Examined:
    settings = VerifySettings(
        server=(partition.url,),
        output=partition.output,
        state_dir=partition.state,
        partition=("0",),
        since=since,
        path_template=template,
    )
    (one,) = verify(settings).examined
    return one


def the_report(partition: Partition) -> FileReport:
    (report,) = examined(partition).reports
    assert report.host == "web01"
    return report


def found(report: FileReport) -> tuple[Counts, str]:
    return report.counts, report.first.split()[0]


def segment(partition: Partition, number: int) -> Path:
    return partition.output / f"web01.log.{number:06d}"


def pruned(partition: Partition, *numbers: int) -> None:
    """Remove segments as retention does."""
    for number in numbers:
        segment(partition, number).unlink()
        partition.sql("DELETE FROM segments WHERE number = ?", number)


def edit(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def test_what_was_received_is_well(partition: Partition) -> None:
    received(partition)

    done = examined(partition)

    assert (done.hosts, done.reports) == (2, ())
    assert done.size == sum(map(len, LINES)) + len(b"other 0\n") + 5 * len(b"other 10\n")


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

    assert whole.reports == ()
    assert found(the_report(partition)) == (ALTERED, "web01.log.000001")


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        pytest.param(lambda ls: ls[:3] + ls[4:], Counts(missing=1), id="a line removed"),
        pytest.param(lambda ls: ls[:4] + ls[3:], Counts(unexpected=1), id="a line doubled"),
        pytest.param(
            lambda ls: [*ls[:3], ls[4], ls[3], *ls[5:]], Counts(reordered=2), id="swapped"
        ),
        pytest.param(lambda ls: [*ls[:3], b"x" + ls[3][1:], *ls[4:]], ALTERED, id="a byte"),
        pytest.param(lambda ls: [*ls[:3], ls[3][:9] + b"\n", *ls[4:]], ALTERED, id="half a line"),
        pytest.param(
            lambda ls: [*ls[:3], b"stranger\n", *ls[3:]], Counts(unexpected=1), id="foreign"
        ),
    ],
)
def test_a_damage_in_a_closed_segment_is_counted_with_its_place(
    change: Callable[[list[bytes]], list[bytes]], wrong: Counts, partition: Partition
) -> None:
    received(partition)

    edit(segment(partition, 2), change)

    assert found(the_report(partition)) == (wrong, "web01.log.000002")


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        pytest.param(lambda ls: [*ls[:-1], ls[-1][:-5]], ALTERED, id="the tail cut"),
        pytest.param(lambda ls: ls[:-1], Counts(missing=1), id="the last line gone"),
    ],
)
@pytest.mark.parametrize("name", ["web01.log", "web01.log.000002"])
def test_a_damage_at_the_end_is_counted(
    change: Callable[[list[bytes]], list[bytes]], wrong: Counts, name: str, partition: Partition
) -> None:
    received(partition)

    edit(partition.output / name, change)

    assert found(the_report(partition)) == (wrong, name)


def test_lines_behind_the_end_of_a_closed_segment_are_found(partition: Partition) -> None:
    received(partition)

    edit(segment(partition, 2), lambda ls: [*ls, b"a stranger's\n"])

    assert found(the_report(partition)) == (Counts(unexpected=1), "web01.log.000002")


def test_a_segment_that_was_removed_is_named(partition: Partition) -> None:
    received(partition)
    gone = len(segment(partition, 2).read_bytes().splitlines())

    segment(partition, 2).unlink()

    report = the_report(partition)
    assert found(report) == (Counts(missing=gone), "web01.log.000002")


def test_a_host_whose_files_are_gone_is_missing_as_a_whole(partition: Partition) -> None:
    received(partition)
    for path in partition.output.glob("web01.log*"):
        path.unlink()

    assert found(the_report(partition)) == (Counts(missing=len(LINES)), "web01.log.000001")


def test_the_oldest_segments_may_have_been_pruned(partition: Partition) -> None:
    received(partition)
    size = segment(partition, 1).stat().st_size

    pruned(partition, 1)

    report = the_report(partition)
    assert (report.counts, report.pruned) == (Counts(), size)


def test_pruned_lines_are_told_apart_from_the_same_lines_later(partition: Partition) -> None:
    partition.lines("web01", *[line for _ in range(3) for line in LINES])
    partition.claim()
    partition.receive()
    sizes = [path.stat().st_size for path in (segment(partition, n) for n in (1, 2, 3, 4))]

    pruned(partition, 1, 2, 3, 4)

    report = the_report(partition)
    assert (report.counts, report.pruned) == (Counts(), sum(sizes))


def test_what_was_received_before_the_first_message_is_no_difference(partition: Partition) -> None:
    received(partition)

    assert examined(partition, "seq:30").reports == ()


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
        reports.append(examined(partition).reports)

    assert reports == [(), (), (), ()]


def test_odd_messages_are_judged_as_the_receiver_judged_them(partition: Partition) -> None:
    partition.publish(
        ours("web01", "app.log", 0, b"one\ntwo\n"),
        ours("web01", "app.log", 0, b"one\ntwo\n"),
        ours("web01", "app.log", 4, b"two\nthree\n"),
        ours("web01", "app.log", 50, b"after a gap\n"),
        ("logs.p0.web01", b"without an end", None),
        ("logs.p0.web01", b"not zstd", {"Content-Encoding": "zstd"}),
        ours("web01", "app.log", 50, b"after a\n", end=70, filtered=True),
        message(
            "web01",
            *(lines_of("app.log", 70, b"piece, "), lines_of("other.log", 0, b"other\n")),
            *(lines_of("other.log", 90, b"9\n"), lines_of("app.log", 77, b"rest\n")),
        ),
        message("web01", lines_of("app.log", 70, b"piece, "), lines_of("other.log", 92, b"10\n")),
        ("logs.p0.web03", b"", {"Log-Agent": "1-1", "Log-Read-At": "1"}),
    )
    partition.claim()
    partition.receive()

    done = examined(partition)

    assert (done.reports, done.refused) == ((), 1)


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

    assert (well.hosts, well.reports) == (1, ())
    (report,) = damaged.reports
    assert report.live == str(path.relative_to(partition.output))
    assert found(report) == (Counts(missing=1), report.live)


def test_files_are_well_that_are_rotated_and_compressed_while_they_are_looked_at(
    partition: Partition,
) -> None:
    received(partition)
    order = Order(partition.output, partition.state, "zstd")

    def receive_more() -> None:
        begin = sum(map(len, LINES))
        for number in range(40):
            more = b"more %03d, of a log that goes on\n" % number * 9
            partition.publish(ours("web01", "app.log", begin, more))
            begin += len(more)
            partition.receive(partition.offset().next)
            Retention(order, time.time_ns).tidy(lambda: False)

    looks = 0
    with ThreadPoolExecutor(1) as beside:
        receiving = beside.submit(receive_more)
        while not receiving.done():
            assert examined(partition).reports == ()
            looks += 1
        receiving.result()

    assert looks > 3
    assert list(partition.output.glob("web01.log.*.zst"))
    assert examined(partition).reports == ()
