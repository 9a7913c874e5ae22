"""A task killed or stopped at every named point: no line is lost or repeated."""

from collections import Counter, defaultdict
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from nats_logship.app.exits import ConfigurationError
from nats_logship.client import bucket
from nats_logship.wire.message import Section
from nats_logship.wire.offset import Offset
from nats_logship.wire.streams import OFFSETS_BUCKET
from receiver.consume.assignment import Cause, Done, Ending, ForcedRotation, SessionLimits
from receiver.storage.segments import SegmentCleaner, SegmentPolicy
from tests.receiver.faulty_disk import mounted, recorded_cuts
from tests.receiver.partition import Message, Partition, blocked, lines_of, message
from tests.receiver.points import IN_BATCH, IN_ROTATION

pytestmark = pytest.mark.nats

COUNT = 27
GAPS = (4, 13, 20)  # messages before which a hundred bytes of a file never came
BAD = (3, 16, 21)  # messages that nobody can decompress
_LONG = SessionLimits(60.0)
_HOSTS = ("web01", "db.example.net", "new")


class Sent:
    """Messages of three hosts, two files each, and what is to become of them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.lines: defaultdict[str, bytes] = defaultdict(bytes)
        self.gaps: list[tuple[str, int, int]] = []
        self._ends: Counter[str] = Counter()
        for number in range(COUNT):
            if number in BAD:
                self.messages.append(("logs.p0.new", b"no zstd", {"Content-Encoding": "zstd"}))
            else:
                self._add(number, _HOSTS[number % 3])

    def _add(self, number: int, host: str) -> None:
        if number in GAPS:
            self.gaps.append((host, self._ends[host], self._ends[host] + 100))
            self._ends[host] += 100
        long = f"{number:06d} line of {host}\nand another ".encode().ljust(99, b".") + b"\n"
        sections = [self._section(host, long), self._section(f"other-{host}", b"%09d\n" % number)]
        ordered = sections if number % 4 else sections[::-1]
        self.messages.append(message(host, *ordered))
        self.lines[host] += b"".join(lines for _, lines in ordered)

    def _section(self, file: str, lines: bytes) -> tuple[Section, bytes]:
        self._ends[file] += len(lines)
        return lines_of(file, self._ends[file] - len(lines), lines)


@pytest.fixture
def partition(partition: Partition) -> Partition:
    return replace(partition, rotate_size=250)


def check(partition: Partition, sent: Sent) -> None:
    """Assert that the rest is received, and that files and store have everything once.

    No file is truncated, as its readers would begin again.
    """
    cleaner = SegmentCleaner(SegmentPolicy(partition.output, partition.state, "zstd"), lambda: 0)
    cleaner.clean(lambda: False)
    with recorded_cuts() as cuts:
        report = partition.session(_LONG, partition.offset().next)
    cleaner.clean(lambda: False)

    assert (report.outcome, cuts) == (Ending.SILENCE, [])
    assert partition.offset().next == COUNT + 1
    assert {host: partition.read(host) for host in _HOSTS} == sent.lines
    assert len(list(partition.output.glob("*.zst"))) >= 4, "rotation is what is tested here"
    assert [(one["host"], one["start"], one["end"]) for one in partition.read_gaps()] == sent.gaps
    assert partition.sql("SELECT host, start, until FROM gaps ORDER BY id") == sent.gaps
    assert [about["sequence"] - 1 for about, _ in partition.set_aside()] == list(BAD)


@pytest.mark.parametrize("point", IN_BATCH)
@pytest.mark.parametrize(
    ("passes", "is_shared"),
    [(0, False), (1, False), (1, True)],
    ids=["first batch", "later batch", "with a rollback journal"],
)
def test_a_task_killed_at_any_point_is_undone_or_completed_by_the_next(
    partition: Partition, point: str, passes: int, is_shared: bool
) -> None:
    sent = Sent()
    partition.publish(*sent.messages)
    with mounted(partition.state, kind="ramfs") if is_shared else nullcontext():
        passes *= point != "reported"
        assert partition.run_apart(fault=point, pull=2000, session=_LONG, passes=passes) == -9
        assert (partition.sql("PRAGMA journal_mode") == [("wal",)]) is not is_shared

        check(partition, sent)


def test_a_task_killed_twice_while_it_undoes_is_still_undone(partition: Partition) -> None:
    sent = Sent()
    partition.publish(*sent.messages)

    codes = [partition.run_apart(fault=point) for point in ("stored", "undone", "undone")]

    assert codes == [-9, -9, -9]
    check(partition, sent)


@pytest.mark.parametrize("point", ["appended", "stored"])
def test_a_killed_batch_is_undone_in_files_whose_day_was_closed(
    partition: Partition, cuts: list[str], point: str
) -> None:
    partition = replace(partition, template="{host}/{date}.log")
    partition.lines("web01", b"1")
    partition.receive()
    # as a rotation closes it on a machine whose clock is ahead of the broker's
    row = "path, path, 1, day, length, last_line, '', batch, length"
    partition.sql(f"INSERT INTO segments SELECT {row} FROM files")
    partition.lines("web01", b"2")
    assert partition.run_apart(2, fault=point) == -9

    partition.receive(2)

    assert (list(partition.files().values()), cuts) == ([b"1\n2\n"], [])


@pytest.mark.parametrize("point", ["announced", "closed", "rotated", "files_synced", *IN_ROTATION])
def test_a_task_killed_while_it_closes_files_is_completed(partition: Partition, point: str) -> None:
    hosts = {f"{host}.log.000001": b"one\n" for host in _HOSTS}
    for host in _HOSTS:
        partition.lines(host, b"one")
    until = partition.receive().until
    assert partition.run_apart(until, fault=point, rotation=ForcedRotation.ALL) == -9

    partition.receive(until)

    assert {name: data for name, data in partition.files().items() if data} == hosts
    partition.lines("web01", b"next")
    partition.receive(until)
    assert partition.read("web01") == b"one\nnext\n"


STOPS = ["fetched", "announced", "appended", "synced", "stored"]


@pytest.mark.parametrize("point", STOPS)
def test_a_stopped_task_is_superseded_on_its_own_machine(partition: Partition, point: str) -> None:
    first = partition.take_over("a:1")
    partition.lines("web01", b"1", b"2")

    with partition.stopped_at(point, first.next, first.epoch) as go_on:
        second = partition.take_over("b:2")
        partition.lines("web01", b"3")
        kept_out = partition.session(SessionLimits(lock=0.1), second.next, second.epoch)
        blocked(kept_out.outcome, Cause.LOCKED, "p0.lock")
        report = go_on()

    assert "Superseded" in report
    assert "b:2" in report
    assert isinstance(partition.run(second.next, second.epoch), Done)
    assert (partition.read("web01"), partition.offset().next) == (b"1\n2\n3\n", 4)


@pytest.mark.parametrize("point", STOPS)
def test_a_task_is_superseded_elsewhere(partition: Partition, tmp_path: Path, point: str) -> None:
    there = partition.with_folder(tmp_path / "there")
    first = partition.take_over("a:1")
    partition.lines("web01", b"1", b"2")

    with partition.stopped_at(point, first.next, first.epoch) as go_on:
        second = there.take_over("b:2")
        assert isinstance(there.run(second.next, second.epoch), Done)
        report = go_on()

    assert "Superseded" in report
    before = partition.files()
    with pytest.raises(ConfigurationError, match=r"is 3 and.*offsets adopt --partition 0"):
        partition.take_over("a:4")
    assert partition.files() == before
    assert (there.read("web01"), partition.offset().owner) == (b"1\n2\n", "b:2")


def test_a_late_commit_of_a_batch_that_is_undone_is_refused(partition: Partition) -> None:
    partition.lines("web01", b"1", b"2")
    assert partition.run_apart(fault="stored") == -9
    entry = partition.ask(lambda c: bucket.read(c, OFFSETS_BUCKET, "p0"))
    assert entry
    late = replace(Offset.decode(entry.value), next=3, lines=2, size=4)
    assert partition.run_apart(fault="undone") == -9
    assert partition.files() == {"web01.log": b"1\n2\n"}

    with pytest.raises(bucket.Conflict):
        partition.ask(
            lambda c: bucket.write(c, OFFSETS_BUCKET, "p0", late.encode(), entry.revision)
        )

    assert isinstance(partition.run(), Done)
    assert (partition.read("web01"), partition.offset().next) == (b"1\n2\n", 3)
