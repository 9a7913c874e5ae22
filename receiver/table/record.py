"""Which line begins the record of each line, by the expression that a section names."""

import pyarrow as pa
import pyarrow.compute as pc

from nats_logship.wire.records import PIECE, RecordForm, Records

_EARLIER = pa.scalar(-1, pa.int32())
_UNKNOWN = pa.scalar(None, pa.int32())


def number_records(records: Records, lines: pa.Array, pos: pa.Array, starts: pa.Array) -> pa.Array:
    """Return `pos` of the line that begins the record of each of the lines (bytes).

    `starts` has the numbers of the lines at which parts begin. None for the rest of a record that
    began in an earlier part.
    """
    is_start = pc.is_in(pa.arange(0, len(lines)), starts)
    hits = pc.match_substring_regex(lines, records.pattern)
    if records.form is RecordForm.END:
        begins = pc.or_(is_start, _follow(hits))
    else:
        is_rest = _follow(pc.match_substring_regex(lines, PIECE))
        begins = pc.and_not(hits, pc.and_not(is_rest, is_start))
    known = pc.if_else(begins, pos, pc.if_else(is_start, _EARLIER, _UNKNOWN))
    found = pc.fill_null_forward(known)
    return pc.if_else(pc.equal(found, _EARLIER), _UNKNOWN, found)


def _follow(lines: pa.Array) -> pa.Array:
    """Return which lines are behind one of those."""
    return pa.concat_arrays([pa.array([False]), lines.slice(0, len(lines) - 1)])
