"""How the files of a table are written: Parquet that DuckDB, Polars, Spark and Trino read."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from receiver.table.columns import FILE_SCHEMA, NAMES

_PAGE_BYTES = 8 * 1024 * 1024  # of lines: larger pages compress better


def open_parquet(sink: Any, schema: pa.Schema = FILE_SCHEMA) -> pq.ParquetWriter:
    """Return a writer of rows into an open file; each table is a row group."""
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=5,  # smaller than text by zstd -3, for 1 to 2 s of CPU per GB
        use_dictionary=[*NAMES],
        column_encoding={
            **dict.fromkeys(("time", "sequence", "pos", "record", "ts"), "DELTA_BINARY_PACKED"),
            "line": "PLAIN",
            "raw": "PLAIN",
        },
        write_statistics=[one for one in schema.names if one not in {"line", "raw"}],
        data_page_size=_PAGE_BYTES,
        max_rows_per_page=200_000,
        store_schema=False,
    )
