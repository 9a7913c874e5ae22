"""The limits of micro-batches, and streams that are created again, without Spark."""

import pytest
from pyspark.sql.streaming.datasource import ReadLimit

from broker.topology import Topology
from nats_logship.client.ranges import LostSequences
from pyspark_jetstream.datasource import MicroBatchReader
from pyspark_jetstream.options import SourceOptions
from tests.receiver.partition import api, publish

pytestmark = pytest.mark.nats

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
        return sorted(
            sequence
            for partition in self.reader.partitions(start, end)
            for batch in self.reader.read(partition)
            for sequence in batch.column("sequence").to_pylist()  # type: ignore[union-attr]
        )

    def available_now(self) -> list[list[int]]:
        start, batches = dict(self.reader.initialOffset()), []
        self.reader.prepareForTriggerAvailableNow()
        while (end := self.latest(start)) != start:
            batches.append(self.batch(start, end))
            start = end
        return batches


def fill(url: str, count: int) -> None:
    publish(url, *((f"logs.p{n % 2}.web", b"x\n", None) for n in range(count)))


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        pytest.param({}, [12], id="no limit"),
        pytest.param({"maxOffsetsPerTrigger": "5"}, [5, 5, 2], id="sequences"),
    ],
)
def test_available_now_reads_all_within_the_limit(
    options: dict[str, str], sizes: list[int], logs_url: str
) -> None:
    fill(logs_url, 12)

    batches = Query(logs_url, **options).available_now()

    assert [len(batch) for batch in batches] == sizes
    assert sum(batches, []) == list(range(1, 13))  # noqa: RUF017 - a few


def test_a_query_killed_in_its_first_batch_continues_at_its_beginning(logs_url: str) -> None:
    fill(logs_url, 3)
    died = Query(logs_url, startingOffsets="latest")
    start = dict(died.reader.initialOffset())
    fill(logs_url, 2)
    end = died.latest(start)
    fill(logs_url, 2)

    again = Query(logs_url, startingOffsets="latest")
    first = again.batch(
        dict(again.reader.initialOffset()), end
    )  # as Spark does: its log has only the end
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
def test_another_stream_of_the_name_ends_a_query_or_is_read_from_its_new_part(
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

    with pytest.raises(
        LostSequences, match=r"LOGS was created again .* set failOnDataLoss to false"
    ):
        Query(logs_url).latest(start)

    query = Query(logs_url, failOnDataLoss="false")
    moved = query.latest(start)
    if not is_recreated:
        fill(logs_url, 2)
    end = query.latest(moved)
    assert query.batch(start, moved) == []
    assert query.batch(moved, end) == (list(range(1, 9)) if is_recreated else [6, 7])
