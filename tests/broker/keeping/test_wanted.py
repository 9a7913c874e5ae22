"""Which messages are meant, by the words of a person, and what they come to."""

from dataclasses import replace

import pytest

from broker.keeping.room_plan import Seen
from broker.keeping.room_received import Frontier, Received
from broker.keeping.wanted import Tally, Wanted

ALL = Wanted(100)


@pytest.mark.parametrize(
    ("wanted", "has"),
    [
        pytest.param(ALL, True, id="all"),
        pytest.param(Wanted(50), False, id="at the end of the sequences"),
        pytest.param(Wanted(51), True, id="below it"),
        pytest.param(replace(ALL, before=1000), False, id="stored then"),
        pytest.param(replace(ALL, before=1001), True, id="stored before"),
        pytest.param(replace(ALL, hosts=("web01.example.net",)), True, id="of the host"),
        pytest.param(replace(ALL, hosts=("db*", "web*")), True, id="of a glob"),
        pytest.param(replace(ALL, hosts=("web01",)), False, id="of another host"),
        pytest.param(replace(ALL, partitions=(1, 3)), True, id="of a partition"),
        pytest.param(replace(ALL, partitions=(1,)), False, id="of another partition"),
        pytest.param(
            replace(ALL, received=Received({3: Frontier(3, 51, 2000)})), True, id="received"
        ),
        pytest.param(
            replace(ALL, received=Received({3: Frontier(3, 50, 2000)})), False, id="not received"
        ),
    ],
)
def test_a_message_is_meant_when_all_that_was_said_holds(wanted: Wanted, has: bool) -> None:
    assert wanted.has(3, "logs.p3.web01.example.net", 50, 1000) is has


def test_what_is_of_no_host_is_meant_by_no_glob() -> None:
    assert not replace(ALL, hosts=("*",)).has(None, "logs.p3.a/b", 50, 1000)
    assert ALL.has(None, "logs.p3.a/b", 50, 1000)


@pytest.mark.parametrize(
    ("wanted", "filters"),
    [
        (ALL, ["logs.>"]),
        (replace(ALL, partitions=(1, 2)), ["logs.p1.>", "logs.p2.>"]),
        (replace(ALL, hosts=("b", "a", "a")), ["logs.*.a", "logs.*.b"]),
        (replace(ALL, hosts=("a", "web*")), ["logs.>"]),
        (replace(ALL, hosts=("a b",)), ["logs.>"]),
        (replace(ALL, hosts=("web?",), partitions=(1,)), ["logs.p1.>"]),
    ],
)
def test_the_filters_take_in_all_that_is_meant(wanted: Wanted, filters: list[str]) -> None:
    assert wanted.filters == filters


def test_it_is_told_by_subject_and_what_nobody_has_is_told_apart() -> None:
    tally = Tally(Received({0: Frontier(0, 2, 10**18)}))

    tally.add([Seen(1, "logs.p0.a", 100, 10), Seen(2, "logs.p0.a", 100, 20)])
    tally.add([Seen(9, "logs.p0.b", 5000, 30)])

    everything, unreceived, first, second = tally.lines()
    assert everything.startswith("3 messages (5.1 KiB), sequences 1 to 9, stored 1970-")
    assert "2 messages (5.0 KiB), sequences 2 to 9" in unreceived
    assert first.startswith("  logs.p0.b: 1 messages")
    assert second.startswith("  logs.p0.a: 2 messages")


def test_a_subject_that_is_no_text_is_told_as_text() -> None:
    tally = Tally(Received({}))

    tally.add([Seen(1, "logs.\x1b[2J.\udcff", 100, 10)])

    assert tally.lines()[-1].startswith(r"  logs.\x1b[2J.\udcff: ")


def test_of_many_subjects_the_largest_are_shown() -> None:
    tally = Tally(Received({}))

    tally.add(Seen(n + 1, f"logs.p0.h{n}", n, 1) for n in range(50))

    lines = tally.lines()
    assert len(lines) == 23
    assert "h49" in lines[2]
    assert lines[-1] == "  and 30 subjects more"


def test_nothing_is_said_to_be_nothing() -> None:
    assert Tally(Received({})).lines() == [
        "nothing would be removed: no message in the stream matches"
    ]
