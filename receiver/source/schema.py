"""What the data source shows of a message: the columns of its rows. Values only."""

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from receiver.source.options import Show

__all__ = ["HEADERS", "SPAN", "arrow_schema", "columns"]

_WHERE = (
    StructField("partition", IntegerType()),
    StructField("sequence", LongType()),
    StructField("time", TimestampType()),
    StructField("subject", StringType()),
    StructField("host", StringType()),
    StructField("file", StringType()),
)
_SPAN = StructType(
    [
        StructField("file", StringType()),
        StructField("start", LongType()),
        StructField("end", LongType()),
    ]
)
_SECTION = (
    StructField("section", IntegerType()),
    StructField("span", _SPAN),
    StructField("lines", IntegerType()),
    StructField("payload", BinaryType()),
)
_HEADERS = StructField("headers", MapType(StringType(), StringType()))

SPAN = pa.struct([("file", pa.string()), ("start", pa.int64()), ("end", pa.int64())])
HEADERS = pa.map_(pa.string(), pa.field("value", pa.string()))

_WHERE_ARROW = [
    ("partition", pa.int32()),
    ("sequence", pa.int64()),
    ("time", pa.timestamp("us", tz="UTC")),
    ("subject", pa.string()),
    ("host", pa.string()),
    ("file", pa.string()),
]
_SECTION_ARROW = [
    ("section", pa.int32()),
    ("span", SPAN),
    ("lines", pa.int32()),
    ("payload", pa.binary()),
]


def columns(show: Show) -> StructType:
    """Return the schema of the rows: of sections, or of their lines; `headers` as in Spark's Kafka source."""
    line_type = StringType() if show.as_text else BinaryType()
    lines = (StructField("pos", IntegerType()), StructField("line", line_type))
    fields = [*_WHERE, *(lines if show.explode else _SECTION)]
    return StructType([*fields, _HEADERS] if show.headers else fields)


def arrow_schema(show: Show) -> pa.Schema:
    """Return the same for Arrow, exactly as Spark wants it."""
    line_type = pa.string() if show.as_text else pa.binary()
    lines = [("pos", pa.int32()), ("line", line_type)]
    fields = [*_WHERE_ARROW, *(lines if show.explode else _SECTION_ARROW)]
    return pa.schema([*fields, ("headers", HEADERS)] if show.headers else fields)
