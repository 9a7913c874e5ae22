"""Keep the number of files small: which files to merge, and the task that merges them.

A merged file is sorted by host again, so that a query for a host reads little of it. A task holds a
page of each file in memory, however many rows the file has.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nats_logship.app.faults import fault
from receiver.table.columns import FILE_SCHEMA, GROUP_BYTES, NAMES
from receiver.table.location import Location
from receiver.table.log import KnownFile
from receiver.table.write import File, write_tables

_HOUR_BYTES = 128 * 1024 * 1024  # of a file of an hour, compressed
_DAY_BYTES = 256 * 1024 * 1024
_MOST_FILES = 16  # merged at a time; of each a page of lines is in memory, mostly of 8 MiB
_BATCH_BYTES = 1024 * 1024  # of rows that are read at a time
_BUFFER_BYTES = 256 * 1024  # of a compressed column
_FEW_OF_HOUR = 8  # files are left to the end of the day: each merge writes all once more
_PATIENCE = timedelta(minutes=5)  # after an hour or day: a round may still write lines of it


@dataclass(frozen=True, slots=True)
class Group:
    """Files of a day to merge into one; `added` are columns that somebody has added to ours."""

    day: date
    files: tuple[KnownFile, ...]
    added: tuple[pa.Field, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns of its files."""
        return pa.schema([*FILE_SCHEMA, *self.added])


_Run = tuple[str, pa.RecordBatch, int]
"""A host, rows of it, and about how many bytes they take."""


def find_groups(
    files: Sequence[KnownFile], now: datetime, added: tuple[pa.Field, ...] = ()
) -> list[Group]:
    """Return the files to merge, of closed hours and closed days; `files` as `Log.files`."""
    runs = list[tuple[KnownFile, ...]]()
    today = (now - _PATIENCE).date()
    hour = (now - _PATIENCE).isoformat()[:13]
    for day, of_day in groupby(files, key=lambda one: one.day):
        found = [one for one in of_day if one.rows]
        if day < today:
            runs += _pack(found, _DAY_BYTES)
            continue
        closed = [one for one in found if one.ends[:13] < hour]
        for _, of_hour in groupby(closed, key=lambda one: one.begins[:13]):
            if len(one_hour := [*of_hour]) > _FEW_OF_HOUR:
                runs += _pack(one_hour, _HOUR_BYTES)
    return [Group(run[0].day, run, added) for run in runs if len(run) > 1]


def _pack(files: Iterable[KnownFile], most: int) -> Iterator[tuple[KnownFile, ...]]:
    """Yield runs of files that are small for `most` bytes, one file or none as well."""
    run, size = list[KnownFile](), 0
    for one in files:
        if one.size * 2 > most:
            continue
        if len(run) == _MOST_FILES or (run and size + one.size > most):
            yield tuple(run)
            run, size = [], 0
        run.append(one)
        size += one.size
    yield tuple(run)


def merge_files(group: Group, lines: Location) -> tuple[Group, File]:
    """Write the rows of files to a new one, by host and then in their order, and return it."""
    runs = (_find_runs(one, group.schema, lines) for one in group.files)
    by_host = heapq.merge(*runs, key=itemgetter(0))  # of a host, the earlier file's come first
    merged = write_tables(_gather(by_host), group.day.isoformat(), lines, group.schema)
    if merged.rows != (rows := sum(one.rows for one in group.files)):
        raise ValueError(f"{merged.rows} rows were merged, of {rows}")
    fault("table_merged")
    return group, merged


def _find_runs(file: KnownFile, schema: pa.Schema, lines: Location) -> Iterator[_Run]:
    """Yield the rows of each host in a batch of a file, which is sorted by host."""
    with pq.ParquetFile(
        file.path,
        filesystem=lines.file_system,
        read_dictionary=[*NAMES],
        buffer_size=_BUFFER_BYTES,
        pre_buffer=False,
    ) as whole:
        for batch in whole.iter_batches(_count_rows(whole.metadata), use_threads=False):
            rows = _conform(batch, schema)
            width, hosts, begin = rows.nbytes // rows.num_rows, rows["host"], 0
            runs = pc.run_end_encode(hosts.indices)
            names = hosts.dictionary.take(runs.values).to_pylist()
            for host, end in zip(names, runs.run_ends.to_pylist(), strict=True):
                yield host, rows.slice(begin, end - begin), width * (end - begin)
                begin = end


def _count_rows(file: pq.FileMetaData) -> int:
    """Return how many rows of a file are a batch."""
    groups = (file.row_group(number) for number in range(file.num_row_groups))
    size = sum(group.total_byte_size for group in groups)
    return max(1, int(file.num_rows) * _BATCH_BYTES // max(1, int(size)))


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema; a file that was written before a column has no values."""
    columns = [
        batch[one.name].cast(one.type)
        if one.name in batch.schema.names
        else pa.nulls(batch.num_rows, one.type)
        for one in schema
    ]
    return pa.record_batch(columns, schema=schema)


def _gather(runs: Iterable[_Run]) -> Iterator[pa.Table]:
    """Yield tables of about `GROUP_BYTES`."""
    found, size = list[pa.RecordBatch](), 0
    for _, rows, width in runs:
        found.append(rows)
        size += width
        if size >= GROUP_BYTES:
            yield _join(found)
            found, size = [], 0
    if found:
        yield _join(found)


def _join(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return one table; a column has one dictionary then, else it would be written without one."""
    return pa.Table.from_batches(batches).unify_dictionaries()
