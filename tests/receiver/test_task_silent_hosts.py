"""The file of a silent host is closed at the change of period, though others send."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.receiver.partition import Message, Partition, ours
from tests.receiver.points import IN_BATCH
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats

HOUR = timedelta(hours=1)
CLOSED = "web01.log.000001"


def age(partition: Partition) -> None:
    """Make the last line of web01 as old as if it had come in an earlier period."""
    query = "UPDATE files SET last_line = last_line - 10000 * 1000000000 WHERE host = 'web01'"
    partition.sql(query)


@pytest.fixture
def hourly(partition: Partition) -> Partition:
    """Return a partition that has received an old line of web01 and a new one of web02."""
    hourly = replace(partition, rotate_every=HOUR)
    hourly.lines("web01", b"old\n")
    hourly.lines("web02", b"new\n")
    hourly.receive()
    age(hourly)
    hourly.lines("web02", b"newer\n")
    return hourly


def test_another_hosts_first_line_in_a_new_period_closes_a_silent_file(hourly: Partition) -> None:
    assert hourly.receive(3).closed == (CLOSED,)
    assert (hourly.output / CLOSED).read_bytes() == b"old\n"
    assert (hourly.output / "web02.log").read_bytes() == b"new\nnewer\n"

    hourly.lines("web01", b"later\n")
    hourly.lines("web02", b"newest\n")
    assert hourly.receive(4).closed == ()
    assert hourly.read("web01") == b"old\nlater\n"


def test_without_a_period_nothing_is_closed(hourly: Partition) -> None:
    assert replace(hourly, rotate_every=timedelta()).receive(3).closed == ()


@pytest.mark.parametrize("point", IN_BATCH)
def test_a_task_killed_closing_a_silent_file_is_completed(hourly: Partition, point: str) -> None:
    assert hourly.run_apart(3, fault=point) == -9
    hourly.take_over_and_receive()
    hourly.lines("web01", b"later\n")
    hourly.receive(4, epoch=2)

    assert hourly.read("web01") == b"old\nlater\n"
    assert (hourly.output / CLOSED).read_bytes() == b"old\n"
    assert hourly.read("web02") == b"new\nnewer\n"


@pytest.mark.parametrize("point", ["", "rotated", "stored"])
@pytest.mark.parametrize(
    ("rest", "whole"),
    [
        pytest.param(ours("web01", "a", 5, b"rest\n"), b"begunrest\n", id="the line goes on"),
        pytest.param(ours("web01", "b", 0, b"two\n"), b"begun\ntwo\n", id="another file"),
    ],
)
def test_an_unfinished_line_is_continued_in_the_next_segment(
    partition: Partition, point: str, rest: Message, whole: bytes
) -> None:
    hourly = replace(partition, rotate_every=HOUR)
    hourly.publish(ours("web01", "a", 0, b"begun"))
    done = hourly.receive()
    age(hourly)
    hourly.lines("web02", b"new\n")
    if point:
        assert hourly.run_apart(done.until, fault=point) == -9
    done = hourly.receive(done.until)
    hourly.lines("web02", b"newer\n")
    done = hourly.receive(done.until)

    hourly.publish(rest)
    hourly.receive(done.until)

    assert (hourly.output / CLOSED).read_bytes() == b"begun"
    assert hourly.read("web01") == whole


def test_a_long_session_closes_silent_files_at_each_period(partition: Partition) -> None:
    every_second = replace(partition, rotate_every=timedelta(seconds=1))
    every_second.lines("web01", b"1\n")

    def is_closed() -> bool:
        every_second.lines("web02", b"line\n")
        return (every_second.output / CLOSED).exists()

    with every_second.long_session() as report:
        wait_until("the file of the silent host is closed", is_closed, 30)
        assert not report.done()
    assert (every_second.output / CLOSED).read_bytes() == b"1\n"
    assert every_second.offset().next > 2
