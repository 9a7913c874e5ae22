"""A replay into Parquet: a row per line, in folders by date and host."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker.connecting.access import Access
from broker.selection import Selection
from receiver.replaying.again import Reader
from receiver.replaying.folder import finish, prepare, publish_table
from receiver.replaying.table import write_table
from receiver.replaying.units import cut_evenly
from tests.receiver.partition import Partition, ours


@pytest.mark.nats
@pytest.mark.spark
def test_every_line_is_a_row_and_a_repeat_is_none(
    spark: SparkSession, logs_url: str, tmp_path: Path
) -> None:
    partition = Partition(logs_url, tmp_path)
    until = 1 + partition.publish(
        ours("web01", "app.log", 0, b"one\n\nthree\n"),
        ours("web01", "app.log", 0, b"one\n\nthree\n"),
        ("logs.p0.web02", b"\xff plain", None),
        ("logs.p1.web03", b"x", {"Content-Encoding": "zstd"}),
    )
    out = tmp_path / "table"
    stage = prepare(out)

    count = write_table(
        spark,
        cut_evenly((0, 1), 1, until, 3),
        Reader((logs_url,), Access(), Selection()),
        stage / "table",
    )
    refused = publish_table(out, stage / "table")
    finish(out, {})

    rows = spark.read.parquet(str(out)).orderBy("sequence", "number").collect()
    today = datetime.now(UTC).date()  # noqa: TID251 - the broker's, which is this machine's
    assert [(row["host"], row["file"], row["line"]) for row in rows] == [
        ("web01", "/var/log/app.log", "one"),
        ("web01", "/var/log/app.log", ""),
        ("web01", "/var/log/app.log", "three"),
        ("web02", None, "\ufffd plain"),
    ]
    assert all(isinstance(row["date"], date) and (today - row["date"]).days <= 1 for row in rows)
    assert (count, refused, (out / "_SUCCESS").exists()) == (4, 1, True)
    assert list(out.glob("date=*/host=web02/*.parquet"))
