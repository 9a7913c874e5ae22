"""Batches narrowed by filters, without Spark: fewer messages are fetched, and the rows are the same."""

import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from receiver.source.datasource import JetStreamSource

pytestmark = pytest.mark.nats

Row = dict[str, Any]
TESTS: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: lambda held, value: held is not None and held == value,
    EqualNullSafe: lambda held, value: held == value,
    GreaterThan: lambda held, value: None not in (held, value) and held > value,
    GreaterThanOrEqual: lambda held, value: None not in (held, value) and held >= value,
    LessThan: lambda held, value: None not in (held, value) and held < value,
    LessThanOrEqual: lambda held, value: None not in (held, value) and held <= value,
    In: lambda held, value: held is not None and held in value,
}


ENDS = (datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC))


def _around(time: datetime) -> list[datetime]:
    elsewhere = time.astimezone(timezone(timedelta(hours=-11)))
    return [time - timedelta(microseconds=1), elsewhere, time + timedelta(microseconds=1)]


def fetched(options: dict[str, str], filters: Iterable[Filter] = ()) -> list[Row]:
    """Return the rows that a reader hands to Spark, which looks at every one of them again."""
    reader = JetStreamSource(options).reader(StructType())
    if filters:
        assert list(reader.pushFilters(list(filters))) == list(filters)
    rows = [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
    return sorted(rows, key=lambda row: row["sequence"])


def is_left(row: Row, filters: Iterable[Filter]) -> bool:
    return all(TESTS[type(f)](row[f.attribute[0]], f.value) for f in filters)  # type: ignore[attr-defined]


def test_only_what_the_filters_may_leave_is_fetched(logs_url: str, store: Any) -> None:
    subjects = ("logs.p0.web01", "logs.p1.db.example", "logs.p0.web02", "logs.p1.web01")
    store(logs_url, *((subjects[n % 4], b"x\n", None) for n in range(80)))
    options = {"servers": logs_url}
    times = [row["time"] for row in fetched(options)]

    def count(*filters: Filter) -> int:
        return len(fetched(options, filters))

    assert count() == 80
    assert count(EqualTo(("host",), "web01")) == 40
    assert count(In(("host",), ("web02", "db.example", "nobody", "no host"))) == 40
    assert count(EqualTo(("host",), "no host")) == 0
    assert count(EqualTo(("partition",), 1), EqualTo(("host",), "web01")) == 20
    assert count(In(("partition",), (1, 7))) == 40
    assert count(EqualTo(("subject",), "logs.p0.web02")) == 20
    assert count(GreaterThan(("sequence",), 70), LessThanOrEqual(("sequence",), 75)) < 7
    assert count(In(("sequence",), (11, 12))) == 2
    assert count(GreaterThanOrEqual(("time",), times[60])) == 20
    assert count(LessThan(("time",), times[10])) <= 12
    assert count(EqualTo(("time",), times[10]), EqualTo(("host",), "web02")) == 1
    assert count(GreaterThan(("time",), datetime.fromisoformat("2999-01-01T00:00Z"))) == 0
    assert count(IsNotNull(("host",)), StringStartsWith(("host",), "web")) == 80
    assert count(Not(EqualTo(("host",), "web01"))) == 80


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"partitions": "0"},
        {"subjects": "logs.>"},
        {"subjects": "logs.*.web01,other.>"},
        {"startingOffsets": '{"0": 9, "1": 30}', "failOnDataLoss": "false"},
        {"minPartitions": "5"},
        {"explode": "true"},
    ],
    ids=str,
)
def test_rows_are_the_same_with_and_without_push_down(
    chosen: dict[str, str], logs_url: str, store: Any, call: Any
) -> None:
    chance = random.Random(str(chosen))
    config = call(logs_url, "STREAM.INFO.LOGS")["config"]
    call(logs_url, "STREAM.UPDATE.LOGS", {**config, "subjects": ["logs.>", "other.>"]})
    subjects = [
        *("logs.p0.web01", "logs.p1.web01", "logs.p0.web02", "logs.p1.db.example", "logs.p0"),
        *("logs.p9.web01", "logs.x.web01", "logs.p1.-", "other.web01", "logs.p01.web01"),
    ]
    store(logs_url, *((chance.choice(subjects), b"a\nb\n", None) for _ in range(60)))
    options = {"servers": logs_url, **chosen}
    everything = fetched(options)
    held = [row["time"] for row in fetched({"servers": logs_url, "subjects": ">"})]

    def some_filter() -> Filter:
        column, values = chance.choice(
            [
                ("host", ["web01", "web02", "db.example", "-", "nobody", "a b", "*"]),
                ("partition", [0, 1, 2, 9, -1]),
                ("sequence", [-5, 0, 1, 10, 30, 59, 60, 61, 1000]),
                ("subject", [*subjects, "logs.*.web01", ">"]),
                (
                    "time",
                    [*_around(chance.choice(held)), *_around(held[0]), *_around(held[-1]), *ENDS],
                ),
            ]
        )
        values = [*values, None]
        kind = chance.choice(list(TESTS))
        if kind is In:
            return In((column,), tuple(chance.choices(values, k=chance.randrange(1, 4))))
        return kind((column,), chance.choice(values))  # type: ignore[no-any-return]

    for _ in range(40):
        filters = [some_filter() for _ in range(chance.randrange(1, 4))]
        rows = fetched(options, filters)
        left = [row for row in rows if is_left(row, filters)]
        assert left == [row for row in everything if is_left(row, filters)], filters


def test_push_down_can_be_left_off(logs_url: str, store: Any) -> None:
    store(logs_url, *((f"logs.p0.web{n}", b"x\n", None) for n in range(3)))
    reader = JetStreamSource({"servers": logs_url, "pushDownPredicate": "false"}).reader(
        StructType()
    )

    assert type(reader).pushFilters(reader, [EqualTo(("host",), "web1")]) == [
        EqualTo(("host",), "web1")
    ]
    assert len([b for p in reader.partitions() for b in reader.read(p)]) == 1


def test_a_stream_that_is_not_ours_is_read_by_its_subjects(
    fresh_url: str, store: Any, call: Any
) -> None:
    stream = {"name": "ORDERS", "subjects": ["orders.>"], "storage": "memory", "allow_direct": True}
    call(fresh_url, "STREAM.CREATE.ORDERS", stream)
    store(fresh_url, ("orders.new", b'{"id": 1}', {"Colour": "blue"}), ("orders.old", b"2", None))

    rows = fetched({"servers": fresh_url, "stream": "ORDERS", "subjects": "orders.new,orders.x.>"})

    assert [(r["partition"], r["host"], r["subject"], r["payload"]) for r in rows] == [
        (None, None, "orders.new", b'{"id": 1}\n')
    ]
    assert rows[0]["headers"] == [("Colour", "blue")]
