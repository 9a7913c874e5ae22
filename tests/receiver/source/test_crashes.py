"""A query that loses its workers and is killed itself: its table has every line once all the same."""

import os
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.receiver.partition import Partition
from tests.support.processes import Process, Processes, wait_until

PROGRAM = """
import sys
from tests.receiver.conftest import spark_session

url, folder = sys.argv[1:]
with spark_session("local[2,4]") as spark:  # a task is tried again
    frame = spark.readStream.format("jetstream").options(
        servers=url, startingOffsets="earliest", explode=True, maxOffsetsPerTrigger=15, minPartitions=4
    )
    query = frame.load().select("host", "line").writeStream.trigger(availableNow=True).start(
        f"{folder}/table", format="parquet", checkpointLocation=f"{folder}/checkpoint"
    )
    query.awaitTermination()
"""


def kill_workers(program: Process) -> int:
    """Kill -9 whatever reads for tasks of a program; return how many that were."""
    killed = 0
    for pid in program.tree():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"pyspark.worker" in words:
                os.kill(pid, signal.SIGKILL)
                killed += 1
    return killed


@pytest.mark.long
@pytest.mark.timeout(1200)  # two starts of Spark, and a machine that may be busy
@pytest.mark.nats
@pytest.mark.spark
def test_every_line_is_in_the_table_once_whoever_is_killed(
    spark: SparkSession, processes: Processes, logs_url: str, tmp_path: Path
) -> None:
    partition = Partition(logs_url, tmp_path)
    blocks = [b"".join(b"%d-%d\n" % (n, m) for m in range(20)) for n in range(90)]
    partition.publish(
        *((f"logs.p{n % 2}.web{n % 5}.example", block, None) for n, block in enumerate(blocks))
    )
    commits = tmp_path / "checkpoint/commits"

    def is_done(batch: int) -> bool:
        return (commits / str(batch)).exists()

    words = [sys.executable, "-c", PROGRAM, logs_url, str(tmp_path)]
    program = processes.start("query", words)
    wait_until("a batch", lambda: is_done(0), 150, [program])
    killed = kill_workers(program)
    wait_until("more batches", lambda: is_done(2), 150, [program])
    program.kill()
    wait_until("all of it is gone", lambda: not program.tree(), 90)
    was_done = is_done(5)
    program.start()
    ended = program.wait(360)

    lines = Counter(row.line for row in spark.read.parquet(str(tmp_path / "table")).collect())
    assert (ended, killed > 0, was_done) == (0, True, False), program.last_words()
    assert lines == Counter(line.decode() for block in blocks for line in block.split()), "torn"
