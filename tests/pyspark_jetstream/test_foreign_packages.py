"""The data source works with a user's own `broker`, `receiver` and `shipper`, and from its wheel.

The user's modules are first on the path of the driver and of Spark's workers.
"""

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from receiver.spark.java import find_java
from tests.chaos.spark import Cluster, java_home
from tests.receiver.partition import publish
from tests.support.processes import Processes

pytestmark = [pytest.mark.nats, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
OUR_JVM = """
import os, sys
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from receiver.spark.jvm import connect_jvm, run_jvm

url, folder, own, master = sys.argv[1:]
os.environ |= {"PYTHONPATH": own, "PYSPARK_PYTHON": sys.executable}  # of Spark's workers
with run_jvm("spark://") as jvm, connect_jvm(jvm) as gateway:
    for name in [one for one in sys.modules if one.partition(".")[0] == "receiver"]:
        del sys.modules[name]
    sys.path.insert(0, own)
    conf = SparkConf().setMaster(master).setAppName("own").set("spark.ui.enabled", "false")
    conf.set("spark.executorEnv.PYTHONPATH", own)
    spark = SparkSession(SparkContext(gateway=gateway, conf=conf))
    from pyspark_jetstream import DefaultSource
    spark.dataSource.register(DefaultSource)
"""
SPARKS_LAUNCHER = """
import sys
from pyspark.sql import SparkSession

url, folder, own, master = sys.argv[1:]
sys.path.insert(0, own)
spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
"""
QUERIES = """
def own_modules(rows):
    import broker, receiver, shipper
    return [broker.OWN and receiver.OWN and shipper.OWN for _ in rows]

assert all(spark.sparkContext.parallelize([1, 2], 2).mapPartitions(own_modules).collect())
assert own_modules([1]) == [True]
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
WITH_OUR_JVM = OUR_JVM + textwrap.indent(QUERIES, "    ")


def read_lines(
    command: list[str], url: str, folder: Path, master: str, environment: Mapping[str, str] = {}
) -> None:
    """Read a line of the stream in a batch and in a stream, in a program run by `command`."""
    publish(url, ("logs.p0.web01", b"one\n", None))
    own = folder / "own"
    for path in (own / "broker/__init__.py", own / "shipper/__init__.py", own / "receiver.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("OWN = True\n")

    done = subprocess.run(
        [*command, url, str(folder), str(own), master],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(own) if environment else "", **environment},
    )

    assert done.stdout.split() == ["one", "web01"], done.stderr


@pytest.mark.parametrize("where", ["local", pytest.param("cluster", marks=pytest.mark.long)])
def test_the_source_works_with_foreign_packages_of_our_names(
    logs_url: str, tmp_path: Path, processes: Processes, where: str
) -> None:
    local = where == "local"
    master = "local[1]" if local else Cluster(processes, tmp_path, "127.0.0.1", (), {}).url

    read_lines([sys.executable, "-c", WITH_OUR_JVM], logs_url, tmp_path, master)


@pytest.mark.long  # downloads PySpark
def test_the_wheel_works_in_an_empty_environment(logs_url: str, tmp_path: Path) -> None:
    pip = ("-m", "pip", "-q", "--disable-pip-version-check")
    subprocess.run(
        [sys.executable, *pip, "wheel", "--no-deps", "-w", str(tmp_path), str(ROOT)], check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    programs = tmp_path / "venv/bin"
    subprocess.run([str(programs / "python"), *pip, "install", f"{wheel}[spark]"], check=True)
    (tmp_path / "query.py").write_text(SPARKS_LAUNCHER + QUERIES)
    java = str(java_home(find_java(os.environ).executable, tmp_path))
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "JAVA_HOME": java}

    read_lines([str(programs / "python"), "query.py"], logs_url, tmp_path, "local[1]", environment)
