"""Which line begins the record of each line, by the expression that a section names."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from nats_logship.wire.records import Range, RecordForm, Records

Run = tuple[int, int]
"""Numbers of lines that each begin a record, the first and the last one."""


def number_records(records: Records, lines: bytes, before: int, count: int) -> pa.Array:
    """Return the number of the line that begins the record of each of `count` lines.

    Lines are numbered from `before`. None for the rest of a record that began in an earlier
    message. Python works on each run of records of one line, and on each longer record.
    """
    runs = list(_count_lines(records.find_boundaries(lines), lines, count))
    if records.form is RecordForm.END and (not runs or runs[0][0]):
        runs.insert(0, (0, 0))  # only lines that end a record are known
    first = runs[0][0] if runs else count
    parts = [pa.nulls(first, pa.int32())]
    for (begin, last), (next_begin, _) in zip(runs, [*runs[1:], (count, count)], strict=False):
        parts.append(pa.arange(before + begin, before + last + 1).cast(pa.int32()))
        parts.append(pa.repeat(pa.scalar(before + last, pa.int32()), next_begin - last - 1))
    return pa.concat_arrays(parts)


def _count_lines(ranges: Iterable[Range], lines: bytes, count: int) -> Iterator[Run]:
    """Yield ranges of bytes as numbers of lines, without the end of the last line."""
    number, at = 0, 0
    for begin, end in ranges:
        first = number + lines.count(b"\n", at, begin)
        number = first + lines.count(b"\n", begin, end)
        at = end
        if first < count:
            yield first, min(number, count - 1)
