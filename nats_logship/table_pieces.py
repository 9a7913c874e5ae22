"""Joins what several messages hold of one line or record: `lines` has them whole.

The rows of such a record get the time, the message and the number of its first line, as a search in
the stream shows them. The others are the rows of the files.
"""

from collections.abc import Callable, Sequence
from typing import Any

Execute = Callable[[str, Sequence[Any]], Any]
_MOST = 16  # pieces of a line that are joined: a file without newlines has no end
_CUT = "(piece OR record IS NULL)"
IS_CUT = """
SELECT 1 FROM nearby WHERE piece UNION ALL SELECT 1 FROM nearby WHERE record IS NULL LIMIT 1
"""
"""Whether `nearby` has a part of a line or record; rarely more than statistics is read."""
_PARTS = f"""
CREATE OR REPLACE TEMP TABLE parts AS
WITH marked AS (
  SELECT stream, host, file, sequence, pos, time, record, {_CUT} AS is_cut,
    NOT coalesce(lag(piece) OVER source, false) AS is_line
  FROM nearby
  WHERE {{scope}} AND (stream, host, coalesce(file, '')) IN (
    SELECT (stream, host, coalesce(file, '')) FROM nearby WHERE {_CUT} AND {{scope}})
  WINDOW source AS (PARTITION BY stream, host, file ORDER BY sequence, pos)
), counted AS (
  SELECT *, sum(is_line::INT) OVER source AS line_number,
    sum((is_line AND record IS NOT DISTINCT FROM pos)::INT) OVER source AS record_number
  FROM marked WINDOW source AS (PARTITION BY stream, host, file ORDER BY sequence, pos)
)
SELECT stream, sequence, pos, line_number, first(time) OVER record AS first_time,
  first(sequence) OVER record AS first_sequence, first(pos) OVER record AS first_pos,
  row_number() OVER record - 1 AS number,
  (row_number() OVER line - 1) // {_MOST} AS part
FROM counted
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
