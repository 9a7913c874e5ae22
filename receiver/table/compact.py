"""Keep the number of files small: which files to merge, and the task that merges them.

A merged file is sorted by host again, so that a query for a host reads little of it. A task holds a
page of each file in memory, however many rows the file has.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nats_logship.app.faults import fault
from receiver.table.columns import GROUP_BYTES
from receiver.table.location import Location
from receiver.table.parquet import File, KnownFile, TableForm, write_tables

_HOUR_BYTES = 128 * 1024 * 1024  # of a file of an hour, compressed
_DAY_BYTES = 256 * 1024 * 1024
_MOST_FILES = 16  # merged at a time; of each a page of lines is in memory, mostly of 8 MiB
_BATCH_BYTES = 1024 * 1024  # of rows that are read at a time
_BUFFER_BYTES = 256 * 1024  # of a compressed column
_FEW_OF_HOUR = 8  # files are left to the end of the day: each merge writes all once more
_PATIENCE = timedelta(minutes=5)  # after an hour or day: a round may still write lines of it


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one day of a table, to merge into one."""

    files: tuple[KnownFile, ...]
    location: Location
    form: TableForm


_Run = tuple[str, pa.RecordBatch, int]
"""A host (a stream in `gaps`), rows of it, and about how many bytes they take."""


def find_groups(files: Iterable[KnownFile], now: datetime) -> list[tuple[KnownFile, ...]]:
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
    return [run for run in runs if len(run) > 1]


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


def merge_files(group: Group) -> tuple[Group, File | str]:
    """Write the rows of files to a new one, sorted, and then in their order.

    Returns the new file, or the reason why it cannot be written: a file is damaged or missing.
    """
    try:
        runs = (_find_runs(one, group) for one in group.files)
        ordered = heapq.merge(*runs, key=itemgetter(0))  # the rows of an earlier file come first
        merged = write_tables(_gather(ordered), group.files[0].day, group.location, group.form)
    except (OSError, pa.ArrowException) as error:
        return group, f"{type(error).__name__}: {error}"
    if merged.rows != (rows := sum(one.rows for one in group.files)):
        return group, f"there are {merged.rows} rows in files that should have {rows}"
    fault("table_merged")
    return group, merged


def _find_runs(file: KnownFile, group: Group) -> Iterator[_Run]:
    """Yield the rows of each host in a batch of a file, which is sorted."""
    form = group.form
    with pq.ParquetFile(
        file.path,
        filesystem=group.location.file_system,
        read_dictionary=[*form.names],
        buffer_size=_BUFFER_BYTES,
        pre_buffer=False,
    ) as whole:
        for batch in whole.iter_batches(_count_rows(whole.metadata), use_threads=False):
            rows = _conform(batch, form.file_schema)
            width, column, begin = rows.nbytes // rows.num_rows, rows[form.sort_by], 0
            codes = pc.run_end_encode(column.indices)
            names = column.dictionary.take(codes.values).to_pylist()
            for name, end in zip(names, codes.run_ends.to_pylist(), strict=True):
                # other programs may have added rows without a host
                yield name or "", rows.slice(begin, end - begin), width * (end - begin)
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
