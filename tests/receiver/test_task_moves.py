"""A host moves to another partition: its lines stay in one file, in order, also after kills."""

from dataclasses import replace
from pathlib import Path

import pytest

from nats_logship.wire.message import Followed, Origin, encode_origin
from receiver.consume.assignment import LARGEST_PULL, Done, SessionLimits
from tests.partitions import add_subjects, change_partitions
from tests.receiver.partition import Message, Partition, api, lines_of, message
from tests.receiver.points import IN_BATCH

pytestmark = pytest.mark.nats

HOST = "web01"
Moved = tuple[Partition, Partition]


@pytest.fixture
def old(logs_url: str, tmp_path: Path) -> Partition:
    return Partition(logs_url, tmp_path, 1, rotate_size=250, partitions=2)


@pytest.fixture
def new(old: Partition) -> Partition:
    return replace(old, number=0)


@pytest.fixture
def third(old: Partition) -> Partition:
    old.ask(lambda connection: change_partitions(connection, 3))
    made = replace(old, number=2)
    made.claim()
    return made


def lines(first: int, count: int) -> list[bytes]:
    return [b"%06d %b\n" % (number, b"x" * 92) for number in range(first, first + count)]


def shipped(partition: Partition, first: int, count: int) -> list[Message]:
    """Return messages of a line each, of one file of the host."""
    parts = [
        lines_of("app.log", first * 100 + n * 100, one) for n, one in enumerate(lines(first, count))
    ]
    subject = f"logs.p{partition.number}.{HOST}"
    return [(subject, *message(HOST, part)[1:]) for part in parts]


def claim(
    partition: Partition, *, moved: int | None = None, follows: tuple[Followed, ...] = ()
) -> Message:
    origin = Origin("1-00000001", 1_000, follows=follows, moved=moved)
    return f"logs.p{partition.number}.{HOST}", b"", encode_origin(origin)


def move(before: Partition, after: Partition) -> None:
    """Publish what a shipper says when it goes over."""
    left = before.publish(claim(before, moved=after.number))
    after.publish(claim(after, follows=(Followed(before.number, left),)))


@pytest.fixture
def moved(old: Partition, new: Partition) -> Moved:
    """Publish ten lines to the old partition and ten to the new one."""
    old.claim()
    new.claim()
    old.publish(*shipped(old, 0, 10))
    move(old, new)
    new.publish(*shipped(new, 10, 10))
    return old, new


def received(partition: Partition) -> bytes:
    return partition.read(HOST)


def test_a_former_partition_neither_cuts_nor_closes_a_hosts_files(moved: Moved) -> None:
    old, new = moved
    until = old.receive().until
    new.receive()

    old.move(until, epoch=2)
    old.lines("other", b"line of another host\n")
    assert isinstance(old.run(until, epoch=2), Done)

    assert received(new) == b"".join(lines(0, 20))
    assert old.sql("SELECT path FROM files") == [("other.log",)]


def test_a_host_that_comes_back_loses_nothing_to_a_kill(moved: Moved, third: Partition) -> None:
    old, new = moved
    first = {one.number: one.receive().until for one in moved}
    left = [Followed(one.number, one.publish(claim(one, moved=2))) for one in moved]
    third.publish(claim(third, follows=tuple(left)), *shipped(third, 20, 1))
    left = [Followed(one.number, one.publish(claim(one, moved=0))) for one in (old, third)]
    new.publish(claim(new, follows=tuple(left)), *shipped(new, 21, 10))
    old.receive(first[1])
    done = new.run(first[0])
    assert isinstance(done, Done)
    third.receive()

    assert new.run_apart(done.until, fault="fetched") == -9
    new.receive(done.until)

    assert received(new) == b"".join(lines(0, 31))


@pytest.mark.parametrize("point", IN_BATCH)
def test_a_task_killed_while_a_host_moves_is_completed(
    moved: Moved, cuts: list[str], point: str
) -> None:
    for partition in moved:
        killed = partition.run_apart(fault=point, session=SessionLimits(60.0))
        assert killed == -9
        partition.take_over_and_receive()

    assert (received(moved[1]), cuts) == (b"".join(lines(0, 20)), [])


def test_the_partition_that_takes_a_file_cuts_what_others_have_appended(
    old: Partition, new: Partition, moved: Moved, cuts: list[str]
) -> None:
    assert old.run_apart(fault="stored") == -9
    with (old.output / f"{HOST}.log").open("ab") as file:
        file.write(b"by others\n" * 100)

    old.take_over_and_receive()
    new.receive()

    assert received(new) == b"".join(lines(0, 20))
    assert len(cuts) == 1


@pytest.mark.parametrize("pull", [LARGEST_PULL, 1], ids=["at once", "one by one"])
def test_others_lines_in_the_wrong_partition_go_to_a_marked_file(moved: Moved, pull: int) -> None:
    old, new = moved
    old.lines(HOST, b"from somebody\n")
    replace(old, pull=pull).receive()
    new.receive()

    assert received(new) == b"".join(lines(0, 20))
    assert (old.output / f"{HOST}..p1.log").read_bytes() == b"from somebody\n"


@pytest.mark.parametrize(
    "end", [Followed(1, 10**9), Followed(7, 1), Followed(1, 2), Followed(0, 2)]
)
def test_a_claim_of_no_possible_end_blocks_nobody(
    old: Partition, new: Partition, end: Followed
) -> None:
    old.move(2)
    new.move(2)
    new.ask(lambda connection: add_subjects(connection, "logs.any.>"))
    new.publish((f"logs.any.{HOST}", b"for another program\n", None))
    old.lines("other", *3 * [b"line of another host\n"])
    new.publish(claim(new, follows=(end,)), *shipped(new, 0, 3))

    new.receive(2)

    assert received(new) == b"".join(lines(0, 3))


def test_a_claim_does_not_wait_for_purged_messages(moved: Moved) -> None:
    _, new = moved
    api(new.url, "STREAM.PURGE.LOGS", {"seq": 12})

    new.receive()

    assert received(new) == b"".join(lines(10, 10))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_claim_that_fails_is_set_aside_alone(old: Partition, new: Partition, count: int) -> None:
    for partition in (old, new):
        partition.claim()
        partition.lines("web07", b"line of another host")
    old.publish(*shipped(old, 0, 1))
    left = old.publish(claim(old, moved=new.number))
    first = new.receive(), old.receive()
    new.sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON files WHEN new.host = 'web01' "
        "BEGIN SELECT RAISE(ABORT, 'refused by a test'); END"
    )
    new.lines("web07", *count * [b"more"])
    poison = new.publish(claim(new, follows=(Followed(old.number, left),)))
    new.lines("web07", b"last")

    done = new.receive(first[0].until)

    assert (done.messages, done.quarantined) == (count + 2, 1)
    assert [about["sequence"] for about, _ in new.set_aside()] == [poison]
    assert new.read("web07").endswith(count * b"more\n" + b"last\n")
