"""A replay into a Parquet table: a row per line, in folders by date and host. Judges spans as files' lines are judged."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, groupby, repeat
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkContext
from pyspark.sql import Observation, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.functions import count, lit
from pyspark.sql.types import StructType

from broker.app.exits import ConfigurationError, OperatorError
from receiver.consume.rebuild import Piece
from receiver.replay.again import Reader
from receiver.replay.attempts import attempt
from receiver.replay.files import keep_refused
from receiver.replay.units import Unit
from receiver.storage.quarantine import Quarantine

__all__ = ["batches", "refuse_without_arrow", "write_table"]

_COLUMNS = (
    "date date, host string, time timestamp, sequence bigint, number int, file string, line string"
)
_ARROW = pa.schema(
    [
        ("date", pa.date32()),
        ("host", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("sequence", pa.int64()),
        ("number", pa.int32()),
        ("file", pa.string()),
        ("line", pa.string()),
    ]
)
_ROWS = 65_536  # in one piece to Spark
_BYTES = 16 * 1024 * 1024  # the same


def write_table(session: SparkSession, units: list[Unit], reader: Reader, place: Path) -> int:
    """Write the lines of units as a table, and return how many there are.

    `place` must not exist; messages that hold no lines are set aside beside it.
    `time` is when a line's message was stored, UTC, and `date` its day; `sequence` and then `number` are the order of lines.
    Bytes that are no UTF-8 become U+FFFD. Raises `OperatorError` when what tasks wrote is not seen here.
    """
    source = _source(_Lines(units, reader, place.parent))
    session.dataSource.register(source)
    written = Observation()
    frame = session.read.format(source.name()).load()
    frame = frame.observe(written, count(lit(1)).alias("lines"))
    frame.write.partitionBy("date", "host").parquet(place.as_uri())
    found = session.read.schema(_COLUMNS).parquet(place.as_uri()).count()
    if found != written.get["lines"]:
        raise OperatorError(
            f"{written.get['lines']} lines were written by tasks, of which {found} are seen here; --output must be a "
            "folder that all executors share"
        )
    return found


def refuse_without_arrow(spark: SparkContext) -> None:
    """Raise `ConfigurationError` when executors lack what rows are made with; it is too large to be brought to them."""

    def has_arrow(_: int) -> bool:  # not of this module, which could not be imported there
        return find_spec("pyarrow") is not None

    tasks = range(spark.defaultParallelism)
    if not all(spark.parallelize(tasks, len(tasks)).map(has_arrow).collect()):
        raise ConfigurationError(
            "--format parquet needs pyarrow on the executors, and there is none: install it for --executor-python, "
            "replay into files, or run it here with --master local[*]"
        )


class _Lines(DataSourceReader):
    def __init__(self, units: list[Unit], reader: Reader, aside: Path) -> None:
        self._units = units
        self._reader = reader
        self._aside = aside

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(unit) for unit in self._units]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(partition.value, self._reader, self._aside)


def _source(lines: _Lines) -> type[DataSource]:
    # its options would be texts; this one is made for what it reads
    class Lines(DataSource):
        @classmethod
        def name(cls) -> str:
            return "logreceiver-replay"

        def schema(self) -> str:
            return _COLUMNS

        def reader(self, schema: StructType) -> DataSourceReader:
            return lines

    return Lines


def _rows(unit: Unit, reader: Reader, aside: Path) -> Iterator[pa.RecordBatch]:
    quarantine = Quarantine(aside, unit.partition)
    with attempt(aside, unit) as started:
        for run in reader.runs(unit):
            keep_refused(quarantine, run.refused)
            yield from batches(run.pieces)
            started.reach(run.until)
        quarantine.sync()


@dataclass(frozen=True, slots=True)
class _Rows:
    """Lines of a piece, `count` of them; `number` is that of the first among its message's."""

    piece: Piece
    number: int
    count: int

    @property
    def file(self) -> str | None:
        return _text(self.piece.file) or None

    @property
    def width(self) -> int:
        """How many bytes stand in each row; of a long path and short lines they are most of it."""
        return len(self.piece.host) + len(self.file or "") + 1


def batches(pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of pieces, those of many small ones together."""
    gathered: list[_Rows] = []
    count = size = 0
    for rows in _numbered(pieces):
        more = len(rows.piece.payload) + rows.count * rows.width
        if gathered and (count + rows.count > _ROWS or size + more > _BYTES):
            yield _together(gathered)
            gathered, count, size = [], 0, 0
        if rows.count > _ROWS or more > _BYTES:
            yield from _apart(rows)
        else:
            gathered.append(rows)
            count, size = count + rows.count, size + more
    if gathered:
        yield _together(gathered)


def _numbered(pieces: Iterable[Piece]) -> Iterator[_Rows]:
    for _, message in groupby(pieces, key=attrgetter("sequence")):
        number = 0
        for piece in message:
            count = piece.payload.count(b"\n") + (not piece.payload.endswith(b"\n"))
            yield _Rows(piece, number, count)
            number += count


def _together(gathered: list[_Rows]) -> pa.RecordBatch:
    payload = b"\n".join(rows.piece.payload.removesuffix(b"\n") for rows in gathered)
    return _batch(gathered, _lines(payload))


def _apart(rows: _Rows) -> Iterator[pa.RecordBatch]:
    lines = _lines(rows.piece.payload.removesuffix(b"\n"))
    most = max(1, min(_ROWS, _BYTES // rows.width))
    for begin in range(0, len(lines), most):
        part = lines.slice(begin, most)
        yield _batch([_Rows(rows.piece, rows.number + begin, len(part))], part)


def _batch(all_rows: list[_Rows], lines: pa.Array) -> pa.RecordBatch:
    counts = (repeat(index, rows.count) for index, rows in enumerate(all_rows))
    which = pa.array(chain.from_iterable(counts), pa.int32())
    numbers = (range(rows.number, rows.number + rows.count) for rows in all_rows)

    def column(name: str, values: Iterable[Any]) -> pa.Array:
        return pa.array(values, _ARROW.field(name).type).take(which)

    time = column("time", (rows.piece.stored_at // 1000 for rows in all_rows))
    columns = [
        time.cast(pa.date32()),
        column("host", (rows.piece.host for rows in all_rows)),
        time,
        column("sequence", (rows.piece.sequence for rows in all_rows)),
        pa.array(chain.from_iterable(numbers), pa.int32()),
        column("file", (rows.file for rows in all_rows)),
        lines,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _lines(payload: bytes) -> pa.Array:
    # no Python text for each line: of many short ones these would take twenty times their bytes
    text = payload.decode("utf-8", "replace")
    return pc.split_pattern(pa.array([text], pa.string()), "\n").flatten()


def _text(value: str) -> str:
    # a path may hold bytes that are no UTF-8; Spark's strings may not
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
