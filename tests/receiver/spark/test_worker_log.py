"""What Python workers log looks as what the program logs that they work for."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from broker.app.logs import JsonLines
from receiver.spark.session import worker_environment

SPEAKS = """
import logging, os
from receiver.spark.worker_daemon import set_up_log
set_up_log(os.environ)
logging.getLogger("somebody").info("not asked for")
logging.getLogger("somebody").warning("broker away: %s", "\\u2028")
"""


@pytest.fixture
def logs_json() -> Iterator[None]:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.getLogger().addHandler(handler)
    yield
    logging.getLogger().removeHandler(handler)


def said(environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SPEAKS],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    return done.stderr


@pytest.mark.usefixtures("logs_json")
def test_a_worker_of_a_program_that_logs_objects_logs_an_object_a_line() -> None:
    words = said(worker_environment())

    (line,) = words.splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["logger"]) == ("warning", "somebody")
    assert entry["message"] == "broker away: \u2028"


@pytest.mark.spark
def test_workers_of_a_running_spark_log_as_they_were_told(spark: SparkSession) -> None:
    context: SparkContext = spark.sparkContext

    def formatters(_: int) -> list[str]:
        return [type(one.formatter).__name__ for one in logging.getLogger().handlers]

    assert context.parallelize([1], 1).map(formatters).collect() == [["TextLines"]]
