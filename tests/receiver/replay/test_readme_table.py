"""The README's example of a table, which is written with the data source, runs as it stands there."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

README = (Path(__file__).parents[3] / "README.md").read_text("utf-8")


@pytest.mark.nats
@pytest.mark.spark
def test_the_table_example_has_a_row_for_every_line_by_date_and_host(
    spark: SparkSession, logs_url: str, store: Any, tmp_path: Path
) -> None:
    store(logs_url, ("logs.p0.web01", b"one\ntwo\n", None), ("logs.p1.web02", b"three\n", None))
    section = README.partition("Tables are written with the data source")[2]
    example = section.partition("```python\n")[2].partition("```")[0]

    exec(
        example.replace("nats://127.0.0.1:4222", logs_url).replace("/srv/logs", str(tmp_path)),
        {"spark": spark},
    )

    rows = spark.read.parquet(str(tmp_path / "lines")).orderBy("sequence", "pos").collect()
    assert [(row.host, row.line) for row in rows] == [
        ("web01", "one"),
        ("web01", "two"),
        ("web02", "three"),
    ]
    assert list(tmp_path.glob("lines/date=*/host=web02/*.parquet"))
