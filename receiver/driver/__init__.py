"""The driver of a receiver: it claims partitions and keeps Spark tasks running at them."""
