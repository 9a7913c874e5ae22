"""The files of a partition, and the SQLite store of what is committed; without network or Spark."""
