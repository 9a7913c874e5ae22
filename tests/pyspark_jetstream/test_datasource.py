"""Rows, ranges, micro-batches, errors and rights of the data source, without Spark."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from broker.topology import Topology
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.client import background, bucket
from nats_logship.client.answer import ConnectionLost
from nats_logship.client.connection import Connection
from nats_logship.client.ranges import LostSequences, SequenceRange, read_range
from nats_logship.wire.message import Origin, encode_origin
from nats_logship.wire.streams import CONFIG_BUCKET, STREAMS_KEY
from pyspark_jetstream import DefaultSource
from pyspark_jetstream.options import SourceOptions
from pyspark_jetstream.streaming import MicroBatchReader
from tests.conftest import apply_topology
from tests.receiver.partition import api, lines_of, message, ours, publish
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.suite import ask, start_nats_server

pytestmark = pytest.mark.nats


def fill(url: str, count: int) -> None:
    publish(url, *((f"logs.p{n % 2}.web", b"x\n", None) for n in range(count)))


def read(reader: Any, partitions: Any) -> list[dict[str, Any]]:
    """Return the rows of partitions, in order within each of them."""
    batches = (batch for partition in partitions for batch in reader.read(partition))
    return [row for batch in batches for row in batch.to_pylist()]


def reader_of(url: str, columns: StructType | None = None, **options: str) -> Any:
    """Return the reader of a batch query for all columns, or for some."""
    source = DefaultSource({"servers": url, **options})
    return source.reader(columns or source.schema())


def rows_of(url: str, **options: str) -> list[dict[str, Any]]:
    reader = reader_of(url, **options)
    return read(reader, reader.partitions())


def sequences(url: str, **options: str) -> list[int]:
    return [row["sequence"] for row in rows_of(url, **options)]


def test_the_sections_of_a_message_are_rows_in_their_order(logs_url: str) -> None:
    parts = [
        lines_of("a", 0, b"one\ntwo\n"),
        lines_of("b", 0, b"", end=90, filtered=True),
        lines_of("b", 90, b"piece"),
        lines_of("a", 8, b"\n\n"),
    ]
    shipped = message("web1", *parts, compressed=True)
    claim = encode_origin(Origin("1-aa", 99))
    publish(logs_url, ("logs.p0.web1", b"", claim), shipped, ("logs.p0.web1", b"plain", None))

    rows, lines = rows_of(logs_url), rows_of(logs_url, explode="true")

    files = ["/var/log/a", "/var/log/b", "/var/log/b", "/var/log/a"]
    assert [(row["sequence"], row["section"], row["file"]) for row in rows] == [
        *((2, n, file) for n, file in enumerate(files)),
        (3, 0, None),
    ]
    assert b"".join(row["payload"] for row in rows) == b"one\ntwo\npiece\n\nplain\n"
    assert dict(rows[0]["headers"]) == dict(rows[3]["headers"]) == shipped[2]
    assert [(row["sequence"], row["pos"], row["line"], row["file"]) for row in lines] == [
        *((2, 0, "one", "/var/log/a"), (2, 1, "two", "/var/log/a"), (2, 2, "piece", "/var/log/b")),
        *((2, 3, "", "/var/log/a"), (2, 4, "", "/var/log/a"), (3, 0, "plain", None)),
    ]


def test_a_batch_reads_from_the_starting_to_the_ending_offset(logs_url: str) -> None:
    fill(logs_url, 10)
    moments = {row["sequence"]: row["time"].isoformat() for row in rows_of(logs_url)}

    found = sequences(logs_url, startingTimestamp=moments[5], endingTimestamp=moments[8])
    pieces = reader_of(logs_url, minPartitions="4")

    assert sequences(logs_url, startingOffsets="3", endingOffsets="6") == [3, 4, 5]
    assert found == [*range(found[0], found[-1] + 1)]
    assert 3 <= found[0] <= 5 <= found[-1] < 8  # rows show microseconds of the nanoseconds
    assert sequences(logs_url, startingTimestamp="2200-01-01") == []
    assert len(pieces.partitions()) >= 4
    assert sequences(logs_url, minPartitions="4") == list(range(1, 11))


def test_removed_messages_are_an_error_or_skipped(logs_url: str) -> None:
    fill(logs_url, 6)
    api(logs_url, "STREAM.PURGE.LOGS", {"seq": 4})

    with pytest.raises(LostSequences, match="sequences 1 to 3 were removed"):
        sequences(logs_url, startingOffsets="1")

    assert sequences(logs_url, startingOffsets="1", failOnDataLoss="false") == [4, 5, 6]
    assert sequences(logs_url) == [4, 5, 6]


def test_a_restart_leaves_no_gap_and_lost_sequences_are_an_error(own_server: Any) -> None:
    largest = bytes(8_000_000 - 1) + b"\n"
    api(own_server.url, "STREAM.CREATE.LOGS", Topology().streams()[0])
    publish(own_server.url, *(("logs.p0.web", largest, None) for _ in range(5)))
    connection = Connection([own_server.url], "tests")
    item = SequenceRange("logs.p0.>", 1, 6)
    runs = read_range(connection, item)

    messages = [*next(runs)]
    own_server.kill_and_restart()
    messages += [message for run in runs for message in run]
    api(own_server.url, "STREAM.PURGE.LOGS", {"seq": 5})

    assert [(m.sequence, len(m.payload)) for m in messages] == [(n, 8_000_000) for n in range(1, 6)]
    with pytest.raises(LostSequences, match="sequences 1 to 4 were removed"):
        list(read_range(connection, replace(item, fail_on_data_loss=True)))
    background.wait(connection.close(), 30)


Offsets = dict[str, dict[str, int]]


class Query:
    """A streaming query as Spark runs it."""

    def __init__(self, url: str, **options: str) -> None:
        given = {"servers": url, "startingOffsets": "earliest", **options}
        self.reader = MicroBatchReader(SourceOptions.parse(given))

    def latest(self, start: Offsets) -> Offsets:
        limit: ReadLimit = self.reader.getDefaultReadLimit()
        return dict(self.reader.latestOffset(start, limit))

    def batch(self, start: Offsets, end: Offsets) -> list[int]:
        rows = read(self.reader, self.reader.partitions(start, end))
        return sorted(row["sequence"] for row in rows)

    def available_now(self) -> list[list[int]]:
        start, batches = dict(self.reader.initialOffset()), []
        self.reader.prepareForTriggerAvailableNow()
        while (end := self.latest(start)) != start:
            batches.append(self.batch(start, end))
            start = end
        return batches


def test_available_now_reads_all_within_the_limit(logs_url: str) -> None:
    fill(logs_url, 12)

    batches = Query(logs_url, maxOffsetsPerTrigger="5").available_now()

    assert Query(logs_url).available_now() == [list(range(1, 13))]
    assert batches == [list(range(1, 6)), list(range(6, 11)), [11, 12]]


def test_a_query_killed_in_its_first_batch_continues_at_its_beginning(logs_url: str) -> None:
    fill(logs_url, 3)
    died = Query(logs_url, startingOffsets="latest")
    start = dict(died.reader.initialOffset())
    fill(logs_url, 2)
    end = died.latest(start)
    fill(logs_url, 2)

    again = Query(logs_url, startingOffsets="latest")
    first = again.batch(dict(again.reader.initialOffset()), end)  # Spark's log has only the end
    second = again.batch(end, again.latest(end))

    assert dict(died.reader.initialOffset()) == start
    assert first + second == [4, 5, 6, 7]


def test_a_repeated_batch_is_the_same_and_is_split_into_tasks(logs_url: str) -> None:
    fill(logs_url, 20)
    query = Query(logs_url, minPartitions="4")
    start = dict(query.reader.initialOffset())
    end = query.latest(start)
    fill(logs_url, 5)

    assert query.batch(start, end) == query.batch(start, end) == list(range(1, 21))
    assert Query(logs_url).batch(start, end) == list(range(1, 21))
    assert len(query.reader.partitions(start, end)) == 4


@pytest.mark.parametrize("is_recreated", [True, False], ids=["created again", "rewound"])
def test_another_stream_of_the_name_ends_a_query_or_is_read(
    logs_url: str, *, is_recreated: bool
) -> None:
    fill(logs_url, 5)
    start = Query(logs_url).latest(dict(Query(logs_url).reader.initialOffset()))
    if is_recreated:
        api(logs_url, "STREAM.DELETE.LOGS")
        api(logs_url, "STREAM.CREATE.LOGS", Topology().streams()[0])
        fill(logs_url, 8)  # more than were read, so the sequences do not reveal it
    else:
        start["LOGS"]["sequence"] = 30

    with pytest.raises(LostSequences, match=r"LOGS was created again .* set failOnDataLoss to"):
        Query(logs_url).latest(start)

    query = Query(logs_url, failOnDataLoss="false")
    moved = query.latest(start)
    if not is_recreated:
        fill(logs_url, 2)
    end = query.latest(moved)
    assert query.batch(start, moved) == []
    assert query.batch(moved, end) == (list(range(1, 9)) if is_recreated else [6, 7])


class LosesAnswer(Connection):
    """Loses the first answer about the stream's state, and counts batches."""

    batches = 0
    has_lost = False

    async def publish(self, subject: str, *args: Any, **options: Any) -> None:
        self.batches += "DIRECT.GET" in subject
        await super().publish(subject, *args, **options)

    async def api(self, name: str, *args: Any, **options: Any) -> dict[str, Any]:
        answer = await super().api(name, *args, **options)
        if name.startswith("STREAM.INFO") and not self.has_lost:
            self.has_lost = True
            raise ConnectionLost("no answer")
        return answer


def test_a_lost_answer_about_the_stream_costs_no_second_batch(logs_url: str) -> None:
    publish(logs_url, ("logs.p0.web", b"x\n", None))
    connection = LosesAnswer([logs_url], "tests")
    item = SequenceRange("logs.p0.>", 1, 2, fail_on_data_loss=True)

    runs = list(read_range(connection, item))

    assert [message.sequence for run in runs for message in run] == [1]
    assert (connection.has_lost, connection.batches) == (True, 1)
    background.wait(connection.close(), 30)


_SECRET = "s3cret-of-the-analyst"
RIGHTS = ("$JS.API.STREAM.INFO.LOGS", "$JS.API.DIRECT.GET.LOGS", "$JS.API.STREAM.MSG.GET.LOGS")


@pytest.fixture
def guarded(processes: Processes, tmp_path: Path) -> dict[str, str]:
    where, conf = f"127.0.0.1:{free_port()}", tmp_path / "server.conf"
    allowed = ", ".join(f'"{right}"' for right in RIGHTS)
    conf.write_text(
        f'listen: {where}\njetstream {{ store_dir: "{tmp_path}/store" }}\n'
        'authorization { users: [ { user: "central", password: "c" }\n'
        f'{{ user: "analyst", password: "{_SECRET}", permissions: {{\n'
        f'  publish: [ {allowed} ], subscribe: [ "_INBOX.>" ] }} }} ] }}\n'
    )
    start_nats_server(processes, "server", conf)
    url = f"nats://central:c@{where}"
    apply_topology(url, Topology(partitions=2))
    publish(url, ("logs.p0.web01", b"one\ntwo\n", None), ("logs.p1.web02", b"three\n", None))
    return {"servers": f"nats://{where}", "user": "analyst", "password": _SECRET}


def test_documented_rights_suffice_and_no_error_shows_a_password(guarded: dict[str, str]) -> None:
    page = (Path(__file__).parents[2] / "docs/spark.md").read_text("utf-8")

    assert all(right in page for right in RIGHTS)
    assert {row["host"] for row in rows_of("", **guarded)} == {"web01", "web02"}
    with pytest.raises(OperatorError, match="refuses user 'analyst'") as refused:
        rows_of("", **{**guarded, "password": "wr0ng"})
    assert "wr0ng" not in str(refused.value)
    with pytest.raises(OperatorError, match=r"permissions violation .*STREAM\.INFO\.OTHER"):
        rows_of("", **guarded, stream="OTHER")


def test_filters_of_a_query_limit_what_is_fetched(logs_url: str) -> None:
    publish(logs_url, *((f"logs.p{n % 2}.web{n % 2}", b"x\n", None) for n in range(20)))
    hour = timedelta(hours=1)
    now = datetime.now(UTC)  # noqa: TID251 - the broker's clock, about

    def fetched(*filters: Filter) -> list[int]:
        reader = reader_of(logs_url, pushDown="true")
        assert reader.pushFilters(list(filters)) == list(filters)  # Spark applies them, too
        return sorted(row["sequence"] for row in read(reader, reader.partitions()))

    sequence, stored, host = ("sequence",), ("time",), ("host",)
    assert fetched(EqualTo(host, "web1")) == list(range(2, 21, 2))
    assert fetched(In(("partition",), (0, 7))) == list(range(1, 21, 2))
    assert fetched(EqualTo(host, "no host*")) == []
    assert fetched(GreaterThan(sequence, 5), LessThanOrEqual(sequence, 9)) == [5, 6, 7, 8, 9]
    assert fetched(GreaterThanOrEqual(stored, now + hour)) == []
    assert fetched(LessThan(stored, now - hour), EqualTo(host, "web0")) == []
    assert fetched(GreaterThan(stored, now - hour)) == list(range(1, 21))
    others = (EqualTo(("line",), "x"), Not(EqualTo(host, "web1")), In(host, (None, "web1")))
    for other in others:
        assert fetched(other) == list(range(1, 21))


def test_a_query_gets_the_columns_of_its_own_schema(logs_url: str) -> None:
    publish(logs_url, ("logs.p0.web", b"a\nb\n", None))
    reader = reader_of(
        logs_url, StructType().add("line", "string").add("host", "string"), explode="true"
    )

    (batch,) = reader.read(reader.partitions()[0])

    assert batch.to_pydict() == {"line": ["a", "b"], "host": ["web", "web"]}
    for wrong in (("lines", "integer"), ("host", "integer"), ("host", "string", False)):
        with pytest.raises(ConfigurationError, match=r"has no column .* it has partition int"):
            reader_of(logs_url, StructType().add(*wrong), explode="true")


def test_a_task_reads_about_32_megabytes_of_lines(logs_url: str) -> None:
    chance, lines = random.Random(4), 200_000
    text = b"".join(
        b"%016x and the same again, once more \n" % chance.getrandbits(64) for _ in range(lines)
    )
    publish(logs_url, *(ours("web", "a", n * len(text), text, compressed=True) for n in range(20)))
    compressed = rows_of(logs_url, endingOffsets="2", includeHeaders="false")

    ranges = [one.value for one in reader_of(logs_url).partitions()]

    assert len(compressed[0]["payload"]) == len(text)
    assert len(text) == 9_600_000
    assert [one.until - one.first for one in ranges] == [3] * 6 + [2]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            {"startingOffsets": "9"},
            "startingOffsets 9 is behind the end of stream LOGS, whose next",
        ),
        ({"endingOffsets": "9"}, "endingOffsets 9 is behind the end of stream LOGS, whose next"),
        ({"startingOffsets": "latest"}, "latest leaves nothing to read"),
        ({"endingOffsets": "earliest"}, "ends before it starts"),
        ({"startingOffsets": "3", "endingOffsets": "2"}, "ends before it starts"),
        ({"startingTimestamp": "2026-01-02", "endingTimestamp": "2026-01-01"}, "ends before it"),
    ],
)
def test_an_impossible_offset_is_named(logs_url: str, options: dict[str, str], error: str) -> None:
    fill(logs_url, 3)

    with pytest.raises(ConfigurationError, match=error):
        rows_of(logs_url, **options)
    if options == {"startingOffsets": "9"}:
        with pytest.raises(ConfigurationError, match=error):
            Query(logs_url, **options).reader.initialOffset()


def test_a_checkpoint_of_another_query_is_refused(logs_url: str) -> None:
    fill(logs_url, 3)
    query, named = Query(logs_url), Query(logs_url, stream="OTHER")
    end = query.latest(dict(query.reader.initialOffset()))

    with pytest.raises(ConfigurationError, match="is of LOGS, and the option stream is OTHER"):
        named.reader.partitions(end, end)
    with pytest.raises(ConfigurationError, match="is not one of jetstream"):
        query.latest({"topic": {"0": 5}})
    with pytest.raises(ConfigurationError, match="no push-down for streaming"):
        Query(logs_url, pushDown="true")


def test_the_newest_offset_is_reported(logs_url: str) -> None:
    fill(logs_url, 12)
    query = Query(logs_url, maxOffsetsPerTrigger="5")
    start = dict(query.reader.initialOffset())

    assert query.reader.reportLatestOffset() is None
    assert query.latest(start)["LOGS"]["sequence"] == 6
    assert query.reader.reportLatestOffset()["LOGS"]["sequence"] == 13


def test_a_query_that_runs_reads_streams_that_are_added(fresh_url: str) -> None:
    two = Topology(partitions=2, stream_count=2)
    apply_topology(fresh_url, two)
    fill(fresh_url, 2)
    query = Query(fresh_url)
    end = query.latest(dict(query.reader.initialOffset()))
    config = two.streams()[0] | {"name": "LOGS_2", "subjects": ["logs.p2.>"]}
    api(fresh_url, "STREAM.CREATE.LOGS_2", config)

    async def count_three(connection: Connection) -> None:
        entry = await bucket.read(connection, CONFIG_BUCKET, STREAMS_KEY)
        assert entry is not None
        await bucket.write(connection, CONFIG_BUCKET, STREAMS_KEY, b"3", entry.revision)

    ask(fresh_url, count_three)
    publish(fresh_url, *(("logs.p2.new", b"x\n", None) for _ in range(3)))
    added = query.latest(end)

    assert set(end) == {"LOGS_0", "LOGS_1"}
    assert query.batch(end, added) == query.batch(end, added) == [1, 2, 3]
    assert query.latest(added) == added
