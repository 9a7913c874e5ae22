"""A user's own modules may be called broker, receiver or shipper: the data source imports none of ours by these names."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.receiver.partition import publish

pytestmark = [pytest.mark.nats, pytest.mark.spark]

SCRIPT = """
import os, sys
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from receiver.spark.java import connect_jvm, run_jvm

url, folder, own = sys.argv[1:]
os.environ |= {"PYTHONPATH": own, "PYSPARK_PYTHON": sys.executable}  # of Spark's workers
with run_jvm("local[1]") as jvm, connect_jvm(jvm) as gateway:
    for name in [one for one in sys.modules if one.partition(".")[0] == "receiver"]:
        del sys.modules[name]
    sys.path.insert(0, own)
    conf = SparkConf().setMaster("local[1]").setAppName("own").set("spark.ui.enabled", "false")
    spark = SparkSession(SparkContext(gateway=gateway, conf=conf))
    import receiver
    assert receiver.OWN
    from pyspark_jetstream import DefaultSource
    spark.dataSource.register(DefaultSource)
    options = {"servers": url, "explode": "true", "startingOffsets": "earliest"}
    lines = spark.read.format("jetstream").options(**options).load()
    print(*(row.line for row in lines.collect()))
    arriving = spark.readStream.format("jetstream").options(**options).load()
    writing = arriving.select("host").writeStream.trigger(availableNow=True)
    writing.option("checkpointLocation", f"{folder}/checkpoint").start(
        f"{folder}/rows", format="parquet"
    ).awaitTermination()
    print(*(row.host for row in spark.read.parquet(f"{folder}/rows").collect()))
    spark.stop()
"""


def test_the_data_source_works_beside_a_users_modules_of_our_programs_names(
    logs_url: str, tmp_path: Path
) -> None:
    publish(logs_url, ("logs.p0.web01", b"one\n", None))
    own = tmp_path / "own"
    for path in (own / "broker/__init__.py", own / "shipper/__init__.py", own / "receiver.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("OWN = True\n")

    command = [sys.executable, "-c", SCRIPT, logs_url, str(tmp_path), str(own)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)

    assert done.stdout.split() == ["one", "web01"], done.stderr
