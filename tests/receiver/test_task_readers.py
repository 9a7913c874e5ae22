"""Readers of live files see each line once, whatever a killed task has left in the files."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nats_logship.app.timestamps import SECOND
from nats_logship.client import background
from nats_logship.client.connection import Connection
from nats_logship.client.pulling import Delivered, PullLimits, follow
from nats_logship.wire.subjects import partition_of
from receiver.consume.assignment import Blocked, Done, ForcedRotation
from receiver.storage.partition_folders import PartitionFolders
from receiver.storage.recovery import adopt
from tests.receiver.partition import Partition
from tests.receiver.points import IN_BATCH, IN_UNDO
from tests.support.processes import Processes, installed, wait_until

pytestmark = pytest.mark.nats

LINES = [b"%06d ".ljust(17, b".") % number + b"\n" for number in range(30)]
WHOLE = b"".join(LINES)


@pytest.fixture
def partition(partition: Partition) -> Partition:
    """Return a partition whose task was killed before the commit of all lines but ten."""
    partition.lines("web01", *LINES[:10])
    partition.receive()
    partition.lines("web01", *LINES[10:])
    assert partition.run_apart(11, fault="stored") == -9
    assert partition.live.read_bytes() == WHOLE
    return partition


@pytest.mark.parametrize("pull", [1, 300, 10_000])
def test_lines_of_a_killed_batch_are_kept_whatever_the_pulls(
    partition: Partition, cuts: list[str], pull: int
) -> None:
    done = replace(partition, pull=pull, limit=2 * pull).receive(11)

    assert partition.live.read_bytes() == WHOLE
    assert (cuts, done.notices, partition.offset().next) == ([], (), 31)


def test_lines_of_a_killed_batch_are_kept_in_a_copy(
    partition: Partition, cuts: list[str], tmp_path: Path
) -> None:
    shutil.copytree(partition.folder, tmp_path / "copy")
    copy = partition.with_folder(tmp_path / "copy")

    assert copy.receive(11).notices == ()

    assert (copy.files(), cuts) == ({"web01.log": WHOLE}, [])


@contextmanager
def another_receiver(partition: Partition) -> Iterator[list[Delivered]]:
    """Have a request of another receiver wait, whose messages are returned."""
    connection, taken = background.connection((partition.url,)), list[Delivered]()
    request = follow(connection, "LOGS.receiver-p0", PullLimits(1000, 10_000_000), 60, taken.append)
    taking = background.submit(request)
    state = lambda: partition.ask(lambda c: c.api("CONSUMER.INFO.LOGS.receiver-p0"))  # noqa: E731
    wait_until("the request waits", lambda: state()["num_waiting"] == 1, 20)
    yield taken
    taking.cancel()


def test_a_request_of_another_receiver_that_takes_the_lines_has_none_cut(
    partition: Partition, cuts: list[str]
) -> None:
    with another_receiver(partition) as taken:
        assert partition.run(11) == Done(0, 11, 11)
    assert len(taken) == 20, "the session has reset the consumer, whose oldest request it was not"
    assert (partition.live.read_bytes(), cuts) == (WHOLE, [])

    partition.receive(partition.offset().next)
    assert (partition.live.read_bytes(), cuts, partition.offset().next) == (WHOLE, [], 31)


@pytest.mark.parametrize(
    ("replica", "is_believed"),
    [
        ({"active": 1, "current": True}, True),
        ({"active": 9 * SECOND, "current": True}, False),
        ({"active": 1, "current": True, "lag": 20}, False),
    ],
    ids=("up-to-date", "out-of-touch", "lagging"),
)
def test_only_a_server_with_all_messages_says_that_nothing_fills_the_rest(
    partition: Partition,
    cuts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    replica: dict[str, Any],
    is_believed: bool,
) -> None:
    ask = Connection.api

    async def ask_n2(connection: Connection, call: str, *rest: Any, **more: Any) -> dict[str, Any]:
        answer = await ask(connection, call, *rest, **more)
        if call == "STREAM.INFO.LOGS":
            answer["config"]["num_replicas"] = 3
            others = [{"name": "n2", **replica}, {"name": "n3", "active": 1, "current": True}]
            answer["cluster"] = {"leader": "n1", "replicas": others}
        if call.startswith("CONSUMER.CREATE.LOGS.wake"):
            answer |= {"cluster": {"leader": "n2"}, "num_pending": 0}
        return answer

    with another_receiver(partition), monkeypatch.context() as patch:
        patch.setattr(Connection, "api", ask_n2)
        outcome = partition.run(11)

    assert isinstance(outcome, Done if is_believed else Blocked)
    assert (len(cuts) > 0) == is_believed
    assert partition.receive(partition.offset().next).until == 31
    assert partition.live.read_bytes() == WHOLE


def zero(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(300)
        opened.write(bytes(300))


def shorten(file: Path) -> None:
    os.truncate(file, 311)


def lengthen(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"by others")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (zero, "web01.log: 300 bytes from byte 300 on, behind the committed length"),
        (lengthen, "web01.log: 9 bytes from byte 600 on, behind the committed length"),
        (shorten, None),
    ],
)
@pytest.mark.parametrize("pull", [1, 10_000])
def test_after_a_power_loss_only_bytes_that_differ_are_cut(
    partition: Partition,
    cuts: list[str],
    change: Callable[[Path], None],
    expected: str | None,
    pull: int,
) -> None:
    change(partition.live)

    done = replace(partition, pull=pull).receive(11)

    assert partition.live.read_bytes() == WHOLE
    assert len(done.notices) == len(cuts) == (expected is not None)
    assert all(one.startswith(expected or "-") for one in done.notices)


@pytest.mark.parametrize("change", [zero, lengthen])
def test_a_task_killed_after_a_cut_is_completed(
    partition: Partition, change: Callable[[Path], None]
) -> None:
    change(partition.live)
    assert partition.run_apart(11, fault="surplus_cut") == -9

    partition.receive(partition.offset().next)

    assert partition.live.read_bytes() == WHOLE


def test_what_nothing_fills_is_cut_once_all_is_received(
    partition: Partition, cuts: list[str]
) -> None:
    lengthen(partition.live)
    first = replace(partition, pull=1, limit=1).run(11)
    assert isinstance(first, Done)
    assert (partition.live.read_bytes(), cuts) == (WHOLE + b"by others", [])

    rest = partition.receive(first.until)
    lengthen(partition.live)
    nothing = partition.run(rest.until)

    assert isinstance(nothing, Done)
    assert partition.live.read_bytes() == WHOLE
    (one,), (other,) = rest.notices, nothing.notices
    assert "behind the committed length, were cut off: they belong to no message" in one
    assert one == other


def test_what_others_append_to_an_adopted_file_is_cut_before_it_is_closed(
    partition: Partition,
) -> None:
    folders = PartitionFolders(partition.output, partition.state, 0)
    adopt(folders, replace(partition.offset(), next=31))
    partition.move(31)
    lengthen(partition.live)
    partition.lines("web01", b"next\n")

    done = partition.receive(31)

    assert partition.files() == {"web01.log.000001": WHOLE, "web01.log": b"next\n"}
    assert ["were appended by another program" in one for one in done.notices] == [True]


@pytest.mark.parametrize("pull", [1, 10_000])
def test_files_are_closed_behind_the_lines_that_were_seen(
    partition: Partition, cuts: list[str], pull: int
) -> None:
    lowered = replace(partition, rotate_size=100, pull=pull)
    lowered.receive(11)
    partition.lines("web01", b"next\n")
    lowered.receive(31)

    assert partition.files() == {"web01.log.000001": WHOLE, "web01.log": b"next\n"}
    assert cuts == []


@pytest.mark.parametrize("pull", [1, 10_000])
def test_a_forced_rotation_receives_first_what_was_seen(
    partition: Partition, cuts: list[str], pull: int
) -> None:
    done = replace(partition, pull=pull).run(11, rotation=ForcedRotation.ALL)

    assert isinstance(done, Done)
    assert (done.until, done.closed) == (31, ("web01.log.000001",))
    assert partition.files() == {"web01.log.000001": WHOLE, "web01.log": b""}
    assert cuts == []


def test_a_period_that_is_over_closes_no_file_before_its_lines_are_received_again(
    partition: Partition, cuts: list[str]
) -> None:
    partition.sql("UPDATE files SET last_line = 1, last_line_before = 1")

    replace(partition, rotate_every=timedelta(days=1), pull=1).receive(11)

    assert (partition.files(), cuts) == ({"web01.log": WHOLE}, [])


_KILLS = [
    *((point,) for point in IN_BATCH if point not in {"closed", "rotated"}),
    *(("stored", point) for point in IN_UNDO),
]


def test_tail_and_a_second_shipper_get_each_line_once_through_all_kills(
    partition: Partition, processes: Processes, tmp_path: Path
) -> None:
    partition.receive(11)
    file, whole = partition.live, WHOLE
    tail = processes.start("tail", ["tail", "-n", "+1", "-F", file])
    host = next(name for name in map(str, range(9)) if partition_of(name, 2) == 1)
    arguments = ["--file", file, "--host", host, "--server", partition.url]
    shipper = processes.start("logshipper", [installed("logshipper"), *arguments])
    second = Partition(partition.url, tmp_path / "second", number=1)
    second.claim()

    def have_read() -> bool:
        second.receive(second.offset().next)
        return tail.log.read_bytes() == second.read(host) == file.read_bytes()

    for number, points in enumerate(_KILLS):
        lines = [b"%d/%d\n" % (number, line) for line in range(20)]
        partition.lines("web01", *lines)
        whole += b"".join(lines)
        for point in points:
            wait_until("the readers have read", have_read, 60, [tail, shipper])
            codes = partition.run_apart(partition.offset().next, fault=point)
            assert codes == -9, point
    wait_until("the readers have read", have_read, 60, [tail, shipper])
    partition.receive(partition.offset().next)
    wait_until("the readers have read", have_read, 60, [tail, shipper])

    assert file.read_bytes() == whole
