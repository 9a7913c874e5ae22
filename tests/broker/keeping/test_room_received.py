import pytest

from broker.keeping.room_received import Frontier, Hold, Received, Segment, frontier, holds
from broker.wire.descent import Ancestor
from broker.wire.offset import Offset

CREATED = "2026-11-20T00:00:00Z"
AT = 1_795_000_000_000_000_000  # 2026-11-18T11:06:40Z


def offset(
    next_: int = 10, created: str = CREATED, last_time: str = "2026-11-18T11:06:40.000Z"
) -> Offset:
    return Offset(next_, 3, created, "somebody", last_time=last_time)


def test_everything_before_the_offset_that_is_no_younger_than_its_last_message_is_received() -> (
    None
):
    reached = frontier(0, offset(), CREATED, 21)
    assert reached is not None
    received = Received({0: reached})

    assert received.has(0, "logs.p0.web01", 9, AT)
    assert not received.has(0, "logs.p0.web01", 10, AT)
    assert not received.has(1, "logs.p1.web01", 9, AT)
    assert not received.has(None, "logs.what", 9, AT)


def test_sequences_given_out_again_are_not_received_whatever_the_offset_says() -> None:
    reached = frontier(0, offset(), CREATED, 21)
    assert reached is not None

    assert not Received({0: reached}).has(0, "logs.p0.web01", 9, AT + 1_000_000)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(None, id="no entry"),
        pytest.param(offset(created="2026-11-19T00:00:00Z"), id="of another stream"),
        pytest.param(offset(22), id="beyond the end of the stream"),
        pytest.param(offset(last_time=""), id="set by hand, and nothing committed"),
        pytest.param(offset(last_time="2026-11-18"), id="a time without a zone"),
    ],
)
def test_in_doubt_nothing_of_a_partition_is_received(told: Offset | None) -> None:
    assert frontier(0, told, CREATED, 21) is None


@pytest.mark.parametrize(("next_", "until"), [(5, 5), (10, 8)])
def test_of_a_restored_stream_that_is_received_which_was_so_of_the_one_in_the_backup(
    next_: int, until: int
) -> None:
    reached = frontier(0, offset(next_), "2026-11-21T00:00:00Z", 30, [Ancestor(CREATED, 8)])

    assert reached is not None
    assert reached.until == until


def consumer(name: str, floor: int, **config: object) -> dict[str, object]:
    return {"name": name, "ack_floor": {"stream_seq": floor}, "config": config}


def test_durable_consumers_hold_back_what_they_have_to_acknowledge() -> None:
    there = [
        consumer("receiver-p0", 1, durable_name="receiver-p0", ack_policy="all"),
        consumer("receiver-p9", 2, durable_name="receiver-p9", ack_policy="all"),
        consumer(
            "audit", 3, durable_name="audit", ack_policy="explicit", filter_subject="logs.p0.>"
        ),
        consumer("both", 4, durable_name="both", ack_policy="all", filter_subjects=["a", "b"]),
        consumer("look", 5, durable_name="look", ack_policy="none"),
        consumer("gone", 6, ack_policy="explicit"),
        *(
            consumer(name, 7, durable_name=name, ack_policy="explicit")
            for name in ("shipper-web01", "wake-p0-1")  # which credentials can make so
        ),
    ]

    assert holds(there, range(2)) == (  # type: ignore[arg-type]
        Hold(">", 2),
        Hold("logs.p0.>", 3),
        Hold("a", 4),
        Hold("b", 4),
    )


@pytest.mark.parametrize(
    ("pattern", "subject", "keeps"),
    [
        ("logs.>", "logs.p0.web01", True),
        ("logs.p0.*", "logs.p0.web01", True),
        ("logs.p0.*", "logs.p0.web01.example.net", False),
        ("logs.p0.>", "logs.p0", False),
        ("logs.*.web01", "logs.p1.web02", False),
        (">", "logs.p0.web01", True),
    ],
)
def test_a_hold_is_for_its_subjects(pattern: str, subject: str, keeps: bool) -> None:
    assert Hold(pattern, 5).keeps(subject, 6) is keeps
    assert not Hold(pattern, 5).keeps(subject, 5)


def test_where_a_receiver_is_behind_its_partition_is_looked_at_no_further() -> None:
    reached = {
        0: Frontier(0, 50, 0),
        1: Frontier(1, 20, 0),
        2: Frontier(2, 50, 0),
        3: Frontier(3, 4, 0),
    }

    assert Received(reached).segments(10) == [Segment(10, 20, (0, 1, 2)), Segment(20, 50, (0, 2))]
    assert Received({}).segments(1) == []
    assert Segment(1, 2, (0, 2)).filters == ["logs.p0.>", "logs.p2.>"]
