"""The README's SQL over the stream runs as it stands there."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

README = (Path(__file__).parents[3] / "README.md").read_text("utf-8")


@pytest.mark.nats
@pytest.mark.spark
def test_the_sql_example_counts_the_lines_of_every_host(
    spark: SparkSession, logs_url: str, store: object, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    store(logs_url, ("logs.p0.web01", b"one\ntwo\n", None), ("logs.p1.web02", b"three\n", None))  # type: ignore[operator]

    exec(example.replace("nats://127.0.0.1:4222", logs_url), {"spark": spark})

    rows = re.findall(r"\|\s*(web\d+)\|\s*(\d+)\|", capsys.readouterr().out)
    assert rows == [("web01", "2"), ("web02", "1")]
