"""Keep the number of files small: which files to merge, and the task that merges them.

A merged file is sorted by host again, so that a query for a host reads little of it. A task holds a
row group of each file in memory, never all rows.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as datasets

from nats_logship.app.faults import fault
from receiver.table.columns import GROUP_BYTES
from receiver.table.location import Location
from receiver.table.log import KnownFile
from receiver.table.parquet import File, TableForm, write_tables

_HOUR_BYTES = 128 * 1024 * 1024  # of a file of an hour, compressed
_DAY_BYTES = 256 * 1024 * 1024
_MOST_FILES = 24  # merged at a time; some `GROUP_BYTES` of each are in memory
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
    """Yield the rows of each host in a row group of a file, which is sorted."""
    form, schema = group.form, group.form.file_schema
    parquet = datasets.ParquetFileFormat(dictionary_columns=form.names)
    whole = parquet.make_fragment(file.path, group.location.file_system)
    for part in whole.split_by_row_group():
        rows = part.to_table(schema, use_threads=False).combine_chunks()
        for batch in rows.to_batches():
            width = batch.nbytes // batch.num_rows
            column, begin = batch[form.sort_by], 0
            codes = pc.run_end_encode(column.indices)
            names = column.dictionary.take(codes.values).to_pylist()
            for name, end in zip(names, codes.run_ends.to_pylist(), strict=True):
                # other programs may have added rows without a host
                yield name or "", batch.slice(begin, end - begin), width * (end - begin)
                begin = end


def _gather(runs: Iterable[_Run]) -> Iterator[pa.Table]:
    """Yield tables of about `GROUP_BYTES`."""
    found, size = list[pa.RecordBatch](), 0
    for _, rows, width in runs:
        found.append(rows)
        size += width
        if size >= GROUP_BYTES:
            yield pa.Table.from_batches(found)
            found, size = [], 0
    if found:
        yield pa.Table.from_batches(found)
