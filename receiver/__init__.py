"""The data pipeline: a Spark application that writes ordered, per-host, rotated files."""
