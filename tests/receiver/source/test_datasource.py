"""The data source in a real Spark on a real stream: batches, SQL, streaming queries, and what is said when it fails."""

from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
import zstandard
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from broker.topology import Topology
from broker.wire.message import Identity, Origin, Section, Span, encode_origin
from tests.receiver.partition import lines_of, message

pytestmark = [pytest.mark.spark, pytest.mark.nats]

IDENTITY = Identity(7, 5, "ab", 5, "cd")


def shipped(start: int, lines: bytes, compressed: bool = False) -> tuple[bytes, dict[str, str]]:
    span = Span("f1", start, start + len(lines))
    section = Section("/var/log/app.log", span, len(lines), lines.count(b"\n"), IDENTITY)
    origin = Origin("1-aa", 99, (section,), compressed)
    return zstandard.compress(lines) if compressed else lines, encode_origin(origin)


def load(spark: SparkSession, url: str, **options: str) -> DataFrame:
    return spark.read.format("jetstream").option("servers", url).options(**options).load()


def sequences(frame: DataFrame) -> list[int]:
    return sorted(row.sequence for row in frame.select("sequence").collect())


def test_rows_are_what_was_published(spark: SparkSession, logs_url: str, store: Any) -> None:
    claim = encode_origin(Origin("1-aa", 99))
    plain, packed = shipped(0, b"one\ntwo\n"), shipped(8, b"three\n" * 500, compressed=True)
    store(
        logs_url,
        ("logs.p0.web1", b"", claim),
        ("logs.p0.web1", *plain),
        ("logs.p0.web1", *packed),
        ("logs.p1.db.example", b"hello", None),
        ("logs.p1.db.example", b"no frame", {**plain[1], "Content-Encoding": "zstd"}),
    )

    rows = load(spark, logs_url, includeHeaders="true").orderBy("sequence").collect()

    assert [(r.partition, r.sequence, r.host, r.lines, bytes(r.payload)) for r in rows] == [
        (0, 2, "web1", 2, b"one\ntwo\n"),
        (0, 3, "web1", 500, b"three\n" * 500),
        (1, 4, "db.example", 1, b"hello\n"),
        (1, 5, "db.example", None, b"no frame"),
    ]
    assert [r.span and tuple(r.span) for r in rows] == [
        ("f1", 0, 8),
        ("f1", 8, 3008),
        None,
        None,
    ]
    assert (rows[0].file, rows[0].subject) == ("/var/log/app.log", "logs.p0.web1")
    assert rows[0].headers["Log-Agent"] == "1-aa"
    assert rows[2].headers == {}


def test_the_files_of_a_message_are_rows_that_can_be_put_in_order(
    spark: SparkSession, logs_url: str, store: Any
) -> None:
    parts = [lines_of(f"f{n}", 0, b"%d\na\n" % n) for n in range(3)]
    subject, payload, headers = message("web1", *parts, compressed=True)
    store(logs_url, (subject, payload, headers), ("logs.p0.web1", b"plain", None))

    rows = load(spark, logs_url).orderBy("sequence", "section").collect()
    lines = load(spark, logs_url, explode="true").orderBy("sequence", "pos").collect()

    files = [f"/var/log/f{n}" for n in range(3)]
    assert [(row.sequence, row.section, row.file) for row in rows] == [
        *((1, n, file) for n, file in enumerate(files)),
        (2, 0, None),
    ]
    assert b"".join(bytes(row.payload) for row in rows) == b"0\na\n1\na\n2\na\nplain\n"
    assert rows[0].headers == rows[2].headers == headers
    assert [(row.sequence, row.pos, row.line, row.file) for row in lines] == [
        *((1, 2 * n + m, (str(n), "a")[m], file) for n, file in enumerate(files) for m in (0, 1)),
        (2, 0, "plain", None),
    ]


def test_a_batch_reads_from_and_to_where_it_is_told(
    spark: SparkSession, logs_url: str, store: Any
) -> None:
    store(logs_url, *(("logs.p0.web", b"x\n", None) for _ in range(10)))
    times = {row.sequence: row.time for row in load(spark, logs_url).collect()}

    some = load(spark, logs_url, startingOffsets="3", endingOffsets="6")
    since = load(spark, logs_url, startingTimestamp=times[8].astimezone(UTC).isoformat())
    cut = load(spark, logs_url, minPartitions="4")

    assert sequences(some) == [3, 4, 5]
    assert sequences(since)[-3:] == [8, 9, 10]
    assert len(sequences(since)) < 10
    assert cut.rdd.getNumPartitions() >= 4
    assert sequences(cut) == list(range(1, 11))


def test_what_retention_removed_is_an_error_by_name_or_skipped(
    spark: SparkSession, logs_url: str, store: Any, call: Any
) -> None:
    store(logs_url, *(("logs.p0.web", b"x\n", None) for _ in range(6)))
    call(logs_url, "STREAM.PURGE.LOGS", {"seq": 4})

    with pytest.raises(PySparkException, match="sequences 1 to 3 were removed"):
        load(spark, logs_url, startingOffsets="1").collect()

    rest = load(spark, logs_url, startingOffsets="1", failOnDataLoss="false")
    assert sequences(rest) == [4, 5, 6]
    assert sequences(load(spark, logs_url)) == [4, 5, 6]


def test_a_streaming_query_reads_everything_once_over_restarts(
    spark: SparkSession, logs_url: str, store: Any, tmp_path: Path
) -> None:
    def run() -> list[dict[str, Any]]:
        query = (
            spark.readStream.format("jetstream")
            .option("servers", logs_url)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "4")
            .load()
            .select("sequence", "host", "payload")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        assert query.awaitTermination(60)
        return [progress for progress in query.recentProgress if progress["numInputRows"]]

    store(logs_url, *((f"logs.p{n % 2}.web", b"%d\n" % n, None) for n in range(10)))
    first = run()
    store(logs_url, *((f"logs.p{n % 2}.web", b"%d\n" % n, None) for n in range(10, 13)))
    second = run()

    assert [progress["numInputRows"] for progress in first] == [4, 4, 2]
    assert [progress["numInputRows"] for progress in second] == [3]
    table = spark.read.parquet(str(tmp_path / "table")).orderBy("sequence").collect()
    assert [(row.sequence, bytes(row.payload)) for row in table] == [
        (n + 1, b"%d\n" % n) for n in range(13)
    ]


def test_a_streaming_query_outlives_a_restart_of_the_broker(
    spark: SparkSession, own_server: Any, store: Any, call: Any, tmp_path: Path
) -> None:
    call(own_server.url, "STREAM.CREATE.LOGS", Topology().streams()[0])
    query = (
        spark.readStream.format("jetstream")
        .option("servers", own_server.url)
        .option("partitions", "0")
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("memory")
        .queryName("restarted")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        store(own_server.url, ("logs.p0.web", b"before\n", None))
        query.processAllAvailable()
        own_server.kill_and_restart()
        store(own_server.url, ("logs.p0.web", b"after\n", None))
        query.processAllAvailable()
    finally:
        query.stop()

    payloads = [bytes(row.payload) for row in spark.table("restarted").collect()]
    assert payloads == [b"before\n", b"after\n"]
