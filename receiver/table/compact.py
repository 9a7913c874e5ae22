"""Keep the number of files small: which files to merge, and the task that merges them.

A merged file is sorted by host again, so that a query for a host reads little of it. A task holds a
slice of the hosts in memory, never all rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as datasets

from nats_logship.app.faults import fault
from receiver.table.columns import FILE_SCHEMA, NAMES
from receiver.table.location import Location
from receiver.table.log import KnownFile
from receiver.table.write import File, write_tables

_HOUR_BYTES = 64 * 1024 * 1024  # of a file of an hour, compressed
_DAY_BYTES = 256 * 1024 * 1024
_MOST_FILES = 100  # merged at a time
_SLICE_ROWS = 200_000
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
        closed = [one for one in found if one.ends[:13].replace(" ", "T") < hour]
        for _, of_hour in groupby(closed, key=lambda one: one.begins[:13]):
            runs += _pack(of_hour, _HOUR_BYTES)
    return [Group(run[0].day, run, added) for run in runs]


def _pack(files: Iterable[KnownFile], most: int) -> Iterator[tuple[KnownFile, ...]]:
    """Yield runs of files that are small for `most` bytes, each two files or more."""
    run, size = list[KnownFile](), 0
    for one in files:
        if one.size * 2 > most:
            continue
        if run and (size + one.size > most or len(run) == _MOST_FILES):
            yield tuple(run)
            run, size = [], 0
        run.append(one)
        size += one.size
    if len(run) > 1:
        yield tuple(run)


def merge_files(group: Group, lines: Location) -> tuple[Group, File]:
    """Write the rows of files to a new one, by host and then in their order, and return it."""
    tables = _sorted_slices(group, lines)
    merged = write_tables(tables, group.day.isoformat(), lines, group.schema)
    if merged.rows != (rows := sum(one.rows for one in group.files)):
        raise ValueError(f"{merged.rows} rows were merged, of {rows}")
    fault("table_merged")
    return group, merged


def _sorted_slices(group: Group, lines: Location) -> Iterator[pa.Table]:
    parquet = datasets.ParquetFileFormat(dictionary_columns=list(NAMES))
    whole = datasets.dataset(
        [one.path for one in group.files],
        schema=group.schema,
        format=parquet,
        filesystem=lines.file_system,
    )
    for hosts in _slice_hosts(whole):
        is_wanted = datasets.field("host").cast(pa.string()).isin(pa.array(hosts, pa.string()))
        batches = whole.to_batches(filter=is_wanted, use_threads=False)
        if len(hosts) == 1:  # its rows are in order: those of a file, and files are too
            yield from _gather(batches, group.schema)
        else:
            yield _sort(pa.Table.from_batches(batches, group.schema))


def _gather(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of batches in tables of about `_SLICE_ROWS`."""
    found, rows = list[pa.RecordBatch](), 0
    for batch in batches:
        found.append(batch)
        rows += batch.num_rows
        if rows >= _SLICE_ROWS:
            yield _combine(pa.Table.from_batches(found, schema))
            found, rows = [], 0
    if rows:
        yield _combine(pa.Table.from_batches(found, schema))


def _sort(rows: pa.Table) -> pa.Table:
    """Return rows by host, and otherwise in their order."""
    rows = _combine(rows)
    text = rows["host"].cast(pa.string())
    return rows.take(pc.sort_indices(pa.table({"host": text}), [("host", "ascending")]))


def _combine(rows: pa.Table) -> pa.Table:
    return rows.unify_dictionaries().combine_chunks()


def _slice_hosts(whole: datasets.Dataset) -> Iterator[list[str]]:
    """Yield the names of all hosts in order: one with many lines alone, others together.

    Those of a list have about `_SLICE_ROWS` lines.
    """
    counts: dict[str, int] = {}
    for batch in whole.to_batches(columns=["host"], use_threads=False):
        for one in pc.value_counts(batch["host"].cast(pa.string())).to_pylist():
            counts[one["values"]] = counts.get(one["values"], 0) + one["counts"]
    names, rows = list[str](), 0
    for name in sorted(counts):
        if names and rows + counts[name] > _SLICE_ROWS:
            yield names
            names, rows = [], 0
        names.append(name)
        rows += counts[name]
    if names:
        yield names
