"""Joins what several messages hold of one line or record: `lines` has them whole.

The rows of such a record get the time, the message and the number of its first line, as a search in
the stream shows them. The others are the rows of the files.

A row whose `record` is NULL may be the rest of the record before, or not: a record also ends after
some time, or some lines. So the row is joined only to a record that began at most `_REST` before.
If there is none, the first rows of its message are a record, as in the stream.

Each row is shown once, because all steps of a search join the same rows. What is joined to a row
depends only on rows of its host and file up to `NEARBY` before it, and `nearby` has all of them:
- A row belongs to the last row before it that begins a record, if that is at most `_REST` before.
- The first row of a message begins a record if no record with a known begin is so near before it.
- A row with a known begin is that begin only if no piece of its line is so near before it.

A row that belongs to another one is shown by the step that has the other one in `own`, each other
row by the step that has the row in `own`. The times of a stream must rise with its sequences.
"""

from collections.abc import Callable, Sequence
from typing import Any

Execute = Callable[[str, Sequence[Any]], Any]
_REST = 100 * 10**6  # microseconds: so much later may the rest of a line or record be stored
NEARBY = 3 * _REST
"""`nearby` needs all files that have rows up to so many microseconds before and after `own`."""
_MOST = 16  # pieces of a line that are joined: a file without newlines has no end
_CUT = "(piece OR record IS NULL)"
IS_CUT = """
SELECT 1 FROM nearby WHERE piece UNION ALL SELECT 1 FROM nearby WHERE record IS NULL LIMIT 1
"""
"""Whether `nearby` has a part of a line or record; rarely more than statistics is read."""
_SOURCE = "source AS (PARTITION BY stream, host, file ORDER BY sequence, pos)"


def _is_near(time: str) -> str:
    """Return a condition: a row was stored at most `_REST` after a time, which may be NULL."""
    return f"coalesce(abs(epoch_us(time) - epoch_us({time})) <= {_REST}, false)"


_PARTS = f"""
CREATE OR REPLACE TEMP TABLE parts AS
WITH placed AS (
  SELECT stream, host, file, sequence, pos, time, {_CUT} AS is_cut,
    record IS NOT DISTINCT FROM pos AS is_head,
    (lag(sequence) OVER source) IS DISTINCT FROM sequence AS is_first,
    NOT coalesce(lag(piece) OVER source AND {_is_near("lag(time) OVER source")}, false) AS is_line
  FROM nearby
  WHERE {{scope}} AND (stream, host, coalesce(file, '')) IN (
    SELECT (stream, host, coalesce(file, '')) FROM nearby WHERE {_CUT} AND {{scope}})
  WINDOW {_SOURCE}
), known AS (
  SELECT *, max(time) FILTER (WHERE is_line AND is_head) OVER source AS head_time
  FROM placed WINDOW {_SOURCE}
), begun AS (
  SELECT *, is_line AND (is_head OR (is_first AND NOT {_is_near("head_time")})) AS is_begin
  FROM known
), counted AS (
  SELECT *, sum(is_line::INT) OVER source AS line_number,
    sum(is_begin::INT) OVER source AS record_number,
    max(time) FILTER (WHERE is_begin) OVER source AS begin_time
  FROM begun WINDOW {_SOURCE}
)
SELECT stream, sequence, pos, line_number, first(time) OVER record AS first_time,
  first(sequence) OVER record AS first_sequence, first(pos) OVER record AS first_pos,
  row_number() OVER record - 1 AS number,
  (row_number() OVER line - 1) // {_MOST} AS part
FROM counted
WHERE {_is_near("begin_time")}
WINDOW record AS (PARTITION BY stream, host, file, record_number ORDER BY sequence, pos),
  line AS (PARTITION BY stream, host, file, line_number ORDER BY sequence, pos)
QUALIFY bool_or(is_cut) OVER (PARTITION BY stream, host, file, record_number)
"""
_JOINED = """
CREATE OR REPLACE TEMP TABLE joined AS
WITH found AS (
  SELECT first_time AS time, host, file, nearby.stream, first_sequence AS sequence,
    first_pos + row_number() OVER record - 1 AS pos, first_pos AS record,
    unhex(string_agg(hex(coalesce(raw, encode(line), ''::BLOB)), '' ORDER BY number)) AS raw,
    string_agg(line, '' ORDER BY number) AS line,
    first(level ORDER BY number) FILTER (level IS NOT NULL) AS level,
    last(piece ORDER BY number) AS piece
  FROM nearby JOIN parts USING (stream, sequence, pos)
  GROUP BY first_time, host, file, nearby.stream, first_sequence, first_pos, line_number, part
  WINDOW record AS (
    PARTITION BY host, file, nearby.stream, first_sequence, first_pos ORDER BY line_number, part)
)
SELECT * REPLACE (coalesce(try(decode(raw)), line) AS line) FROM found
"""
_NAMES = "time, host, file, stream, sequence, pos, record, raw, line, level, piece"
_WHOLE = f"""
CREATE OR REPLACE TEMP VIEW lines AS SELECT *, coalesce(record, pos) AS head FROM (
  SELECT {_NAMES} FROM own ANTI JOIN parts USING (stream, sequence, pos)
  UNION ALL
  SELECT {_NAMES} FROM joined WHERE (stream, sequence, record) IN (
    SELECT (stream, sequence, pos) FROM own))
"""
_OWN = "CREATE OR REPLACE TEMP VIEW lines AS SELECT *, coalesce(record, pos) AS head FROM own"


def show_rows(execute: Execute) -> None:
    """Have `lines` be the rows of `own`; `head` is the line that begins the record, if known."""
    execute(_OWN, ())


def show_whole(execute: Execute, scope: str, values: Sequence[Any]) -> None:
    """Have `lines` be the lines and records that begin in `own`; their rest may be in `nearby`.

    `scope` is a condition with `values`: what is outside is not joined.
    """
    execute(_PARTS.format(scope=scope), [*values, *values])
    execute(_JOINED, ())
    execute(_WHOLE, ())
