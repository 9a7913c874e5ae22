"""The files of a partition and the SQLite store that says what of them is committed. Knows no network and no Spark."""
