"""Reading ranges of a real stream by sequence, also through a broker that goes away in the middle."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.client.connection import Connection
from broker.topology import Topology
from receiver.consume import background
from receiver.source.stream import LostSequences, Range, SourceMessage, read

pytestmark = pytest.mark.nats

Connect = Callable[[str], Connection]


@pytest.fixture
def connect() -> Iterator[Connect]:
    made: list[Connection] = []

    def new(url: str) -> Connection:
        made.append(Connection([url], "tests"))
        return made[-1]

    yield new
    for connection in made:
        background.wait(connection.close(), 5)


def messages(connection: Connection, item: Range, fail: bool = True) -> list[SourceMessage]:
    return [message for run in read(connection, item, fail=fail) for message in run]


def test_a_range_holds_its_partition_in_order_and_is_the_same_again(
    logs_url: str, store: Any, connect: Connect
) -> None:
    store(logs_url, *((f"logs.p{n % 2}.web{n % 3}", b"%d\n" % n, None) for n in range(40)))
    connection = connect(logs_url)

    first = messages(connection, Range("logs.p1.>", 5, 31))

    assert [m.sequence for m in first] == list(range(6, 31, 2))
    assert [m.payload for m in first] == [b"%d\n" % (m.sequence - 1) for m in first]
    assert {m.subject for m in first} == {"logs.p1.web0", "logs.p1.web1", "logs.p1.web2"}
    assert messages(connection, Range("logs.p1.>", 5, 31)) == first


def test_a_message_as_large_as_the_broker_takes_comes_through(
    logs_url: str, store: Any, connect: Connect
) -> None:
    largest = bytes(8_000_000 - 1) + b"\n"
    store(logs_url, ("logs.p0.web", b"small\n", None), ("logs.p0.web", largest, None))

    assert [len(m.payload) for m in messages(connect(logs_url), Range("logs.p0.>", 1, 3))] == [
        6,
        8_000_000,
    ]


def test_what_was_removed_since_the_planning_is_named_unless_it_is_accepted(
    logs_url: str, store: Any, call: Any, connect: Connect
) -> None:
    store(logs_url, *(("logs.p0.web", b"x\n", None) for _ in range(9)))
    call(logs_url, "STREAM.PURGE.LOGS", {"seq": 5})
    connection = connect(logs_url)

    with pytest.raises(LostSequences, match="sequences 1 to 4 were removed"):
        messages(connection, Range("logs.p0.>", 1, 10))

    kept = messages(connection, Range("logs.p0.>", 1, 10), fail=False)
    assert [m.sequence for m in kept] == [5, 6, 7, 8, 9]


def test_a_broker_that_restarts_in_the_middle_leaves_no_hole(
    own_server: Any, store: Any, call: Any, connect: Connect
) -> None:
    block = bytes(1024 * 1024 - 1) + b"\n"
    call(own_server.url, "STREAM.CREATE.LOGS", Topology().streams()[0])
    store(own_server.url, *(("logs.p0.web", block, None) for _ in range(30)))
    runs = read(connect(own_server.url), Range("logs.p0.>", 1, 31))

    read_so_far = [m.sequence for m in next(runs)]
    own_server.kill_and_restart()
    read_so_far += [m.sequence for run in runs for m in run]

    assert read_so_far == list(range(1, 31))
