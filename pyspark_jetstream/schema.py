"""The columns of the rows, and those of them that a query wants."""

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from nats_logship.app.exits import ConfigurationError
from pyspark_jetstream.options import SourceOptions

_SPAN = StructType().add("file", StringType()).add("start", LongType()).add("end", LongType())
_MESSAGE: dict[str, DataType] = {
    "partition": IntegerType(),
    "sequence": LongType(),
    "time": TimestampType(),
    "subject": StringType(),
    "host": StringType(),
    "file": StringType(),
}
_LINE: dict[str, DataType] = {
    "pos": IntegerType(),
    "record": IntegerType(),
    "line": StringType(),
    "piece": BooleanType(),
}
_SECTION: dict[str, DataType] = {
    "section": IntegerType(),
    "span": _SPAN,
    "lines": IntegerType(),
    "payload": BinaryType(),
}
_HEADERS: dict[str, DataType] = {"headers": MapType(StringType(), StringType())}


def columns(options: SourceOptions) -> StructType:
    """Return the columns of rows, sections or lines: those that the query wants, or all."""
    known = _MESSAGE | (_LINE if options.explode else _SECTION)
    known |= _HEADERS if options.headers else {}
    return StructType([StructField(name, known[name]) for name in options.columns or known])


def choose_columns(schema: StructType, options: SourceOptions) -> tuple[str, ...]:
    """Return the names of the columns that a query wants by its own schema.

    Raises `ConfigurationError` for a column that rows do not have, or not of this type.
    """
    known = {field.name: field for field in columns(options)}
    for field in schema:
        if field != known.get(field.name):
            wanted = ", ".join(one.simpleString().replace(":", " ") for one in known.values())
            raise ConfigurationError(
                f"jetstream has no column {field.simpleString().replace(':', ' ', 1)!r}"
                f"{'' if field.nullable else ' NOT NULL'}; with these options it has {wanted}"
            )
    return tuple(schema.names)
