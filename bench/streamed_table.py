"""The table of docs/spark.md, by Spark alone: `python -m bench.streamed_table URL FOLDER`."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_jetstream import DefaultSource
from receiver.spark.jvm import run_jvm
from receiver.spark.session import spark_context


def main() -> None:
    """Write all lines of a broker to a table of Parquet files, once."""
    url, folder = sys.argv[1], Path(sys.argv[2])
    master = f"local[{len(os.sched_getaffinity(0))}]"
    # a JVM for a cluster has all of Spark's archives, those of SQL too
    with run_jvm("spark://") as jvm, spark_context(master, jvm=jvm) as context:
        spark = SparkSession(context)
        spark.dataSource.register(DefaultSource)
        (
            spark.readStream.format("jetstream")
            .options(servers=url, startingOffsets="earliest", explode=True)
            .load()
            .selectExpr("*", "to_date(time) AS date")
            .writeStream.partitionBy("date", "host")
            .trigger(availableNow=True)
            .start(str(folder), format="parquet", checkpointLocation=f"{folder}.checkpoint")
            .awaitTermination()
        )


if __name__ == "__main__":
    main()
