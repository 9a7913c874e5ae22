"""The stream as rows for Spark: the data source `jetstream`. Never touches receivers' consumers, offsets or files."""
