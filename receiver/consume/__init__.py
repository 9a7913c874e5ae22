"""What a Spark task does with a partition: fetch, write, store, commit. Knows nothing of Spark."""
