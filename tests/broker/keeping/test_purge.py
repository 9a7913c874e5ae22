"""Messages taken out of a real stream: what goes, what stays, and what receivers say of it."""

import asyncio
from pathlib import Path

import pytest

from broker.app.exits import OperatorError
from broker.client.connection import Connection
from broker.keeping.purge import consequences, erase, look, purge
from broker.keeping.wanted import Wanted
from broker.looking.one import fetch
from receiver.consume.judging import Kind
from tests.receiver.partition import Partition, ours

pytestmark = pytest.mark.nats

ALL = Wanted(2**63)


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    """Messages of two hosts, in turn: sequences 1, 3, 5, 7 of web01 and 2, 4, 6, 8 of db01."""
    partition = Partition(logs_url, tmp_path)
    for number in range(4):
        lines = b"line %d\n" % number
        partition.publish(*(ours(host, "a", number * 7, lines) for host in ("web01", "db01")))
    return partition


def held(partition: Partition) -> list[int]:
    async def ask(connection: Connection) -> list[int]:
        info = await connection.api("STREAM.INFO.LOGS", {"deleted_details": True})
        state = info["state"]
        gone = set(state.get("deleted") or ())
        return [n for n in range(state["first_seq"], state["last_seq"] + 1) if n not in gone]

    return partition.ask(ask)


def take_out(partition: Partition, wanted: Wanted, received: bool = False) -> int:
    async def ask(connection: Connection) -> int:
        seen = await look(connection, wanted, received=received)
        gone = await purge(connection, seen)
        assert gone.messages == seen.tally.amount.messages
        assert gone.size == seen.tally.amount.size
        return gone.messages

    return partition.ask(ask)


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        pytest.param(Wanted(2**63, hosts=("web01",)), [2, 4, 6, 8], id="a host"),
        pytest.param(Wanted(2**63, hosts=("*01",), partitions=(0,)), [], id="globs"),
        pytest.param(Wanted(4), [4, 5, 6, 7, 8], id="below a sequence"),
        pytest.param(Wanted(2**63), [], id="everything"),
        pytest.param(Wanted(2**63, partitions=(1,)), list(range(1, 9)), id="none"),
        pytest.param(Wanted(2**63, before=1), list(range(1, 9)), id="before there was any"),
    ],
)
def test_what_was_chosen_goes(partition: Partition, wanted: Wanted, left: list[int]) -> None:
    count = take_out(partition, wanted)

    assert held(partition) == left
    assert count == 8 - len(left)


def test_what_comes_after_the_look_stays(partition: Partition) -> None:
    async def ask(connection: Connection) -> None:
        seen = await look(connection, ALL, received=False)
        await connection.ask("logs.p0.web01", b"new\n")
        await purge(connection, seen)

    partition.ask(ask)

    assert held(partition) == [9]


def test_only_what_receivers_have_goes_and_they_miss_nothing(partition: Partition) -> None:
    partition.claim()
    partition.receive()
    more = ours("web01", "a", 28, b"line 4\n")
    partition.publish(more)

    count = take_out(partition, ALL, received=True)
    done = partition.receive(partition.offset().next)

    assert count == 8
    assert done.findings == ()
    assert partition.read("web01") == b"line 0\nline 1\nline 2\nline 3\nline 4\n"


def test_a_message_that_nobody_has_is_named_as_missing_and_one_that_they_have_is_not(
    partition: Partition,
) -> None:
    async def remove(connection: Connection, sequence: int) -> list[str]:
        message = await fetch(connection, sequence)
        words = await consequences(connection, message)
        await erase(connection, message)
        with pytest.raises(OperatorError, match=f"message {sequence}"):
            await fetch(connection, sequence)
        return words

    partition.claim()
    partition.receive()
    partition.publish(*(ours("web01", "a", n * 7, b"line %d\n" % n) for n in (4, 5, 6)))

    had = partition.ask(lambda connection: remove(connection, 1))
    missed = partition.ask(lambda connection: remove(connection, 10))
    done = partition.receive(partition.offset().next)

    assert "receivers have it" in had[0]
    assert "no receiver has it" in missed[0]
    (finding,) = done.findings
    assert (finding.kind, finding.start, finding.end) == (Kind.GAP, 35, 42)
    assert partition.read("web01").endswith(b"line 3\nline 4\nline 6\n")


def test_the_newest_of_a_host_is_said_to_be_what_its_shipper_goes_by(partition: Partition) -> None:
    async def ask(connection: Connection) -> list[list[str]]:
        return [await consequences(connection, await fetch(connection, n)) for n in (5, 7)]

    inner, newest = partition.ask(ask)

    assert len(inner) == 1
    assert "newest of its host" in newest[1]


def test_more_than_go_at_once_go_all_the_same(partition: Partition) -> None:
    async def fill(connection: Connection) -> None:
        for begin in range(0, 14_000, 500):
            every = (f"logs.p0.web0{1 + (n % 7 == 0)}" for n in range(begin, begin + 500))
            await asyncio.gather(*(connection.ask(subject, b"x\n") for subject in every))

    partition.ask(fill)

    take_out(partition, Wanted(2**63, hosts=("*01",)))

    assert len(held(partition)) == 2000
