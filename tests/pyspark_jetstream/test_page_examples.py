"""The examples of docs/spark.md run as they are, except for the address."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from nats_logship.wire.message import Section, Span
from pyspark_jetstream.options import OPTIONS
from tests.receiver.partition import message, publish

_LINES = (("logs.p0.web01", b"one\ntwo\n", None), ("logs.p1.web02", b"three\n", None))
_RECORDS = ((b"A\n1\n", b"A\nB\n"), (b"2\n3\n", b"5\n6\n"), (b"B\n4\n", b"C\nD\n"))
PAGE = (Path(__file__).parents[2] / "docs/spark.md").read_text("utf-8")

pytestmark = [pytest.mark.nats, pytest.mark.spark]


def example(number: int, spark: SparkSession, url: str) -> dict[str, Any]:
    """Run an example and return the names that it leaves."""
    text = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[number]
    assert "nats://127.0.0.1:4222" in text
    names: dict[str, Any] = {"spark": spark}
    exec(text.replace("nats://127.0.0.1:4222", url), names)
    return names


def tables() -> list[str]:
    """Return the tables that the page shows."""
    return re.findall(r"^```\n(\+-.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_session_shows_lines_per_host(
    spark: SparkSession, logs_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(logs_url, *_LINES)
    example(0, spark, logs_url)

    assert tables()[0] in capsys.readouterr().out


def test_records_are_whole_also_over_messages(spark: SparkSession, logs_url: str) -> None:
    a, b = (
        Section(f"/{name}", Span(name, 0, 4), 4, 2, records="start:^[A-Z]") for name in ("a", "b")
    )
    publish(
        logs_url,
        *(message("web01", (a, first), (b, second)) for first, second in _RECORDS),
        *_LINES[1:],
    )

    rows = example(1, spark, logs_url)["records"].collect()

    assert [(row.file, row.sequence, row.text) for row in rows] == [
        ("/a", 1, "A\n1\n2\n3"),
        ("/a", 3, "B\n4"),
        ("/b", 1, "A"),
        ("/b", 1, "B\n5\n6"),
        ("/b", 3, "C"),
        ("/b", 3, "D"),
        (None, 4, "three"),
    ]


@pytest.mark.long
def test_a_stream_counts_errors_by_minute(
    spark: SparkSession, logs_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(logs_url, ("logs.p0.web01", b"ERROR one\nfine\nan ERROR\n", None))
    publish(logs_url, ("logs.p1.web02", b"ERROR two\n", None))
    try:
        example(2, spark, logs_url)
        shown = capsys.readouterr().out
        minutes = spark.sql("SELECT window.start, window.end FROM errors").collect()
    finally:
        for running in spark.streams.active:
            running.stop()
        spark.conf.unset("spark.sql.shuffle.partitions")

    assert tables()[1] in shown
    assert {(row.end - row.start).total_seconds() for row in minutes} == {60}


def test_the_page_names_every_option() -> None:
    assert [name for name in OPTIONS if f"`{name}`" not in PAGE] == []
