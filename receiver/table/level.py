"""The severity of lines, found by a regular expression of RE2 in all lines at once."""

import pyarrow as pa
import pyarrow.compute as pc

from nats_logship.wire.levels import (
    LEVEL_HINT,
    LEVEL_OF,
    LEVEL_PATTERN,
    LEVELS,
    SEARCHED,
    level_pattern,
    levels_from,
)


def find_levels(line: pa.Array) -> pa.Array:
    """Return the level of each line, None for none."""
    # cut in bytes: a character that is cut in half matters to no pattern
    head = pc.binary_slice(line.cast(pa.binary()), 0, SEARCHED)
    rows = pc.indices_nonzero(pc.match_substring_regex(head, LEVEL_HINT))
    if not len(rows):
        return pa.nulls(len(line), pa.dictionary(pa.int32(), pa.string()))
    found = pc.extract_regex(head.take(rows), LEVEL_PATTERN)
    word = pc.binary_join_element_wise(
        *(pc.fill_null(found.field(number), b"") for number in range(4)), b""
    ).dictionary_encode()
    names = [LEVEL_OF.get(one.as_py().decode().lower()) for one in word.dictionary]
    known = [*dict.fromkeys(filter(None, names))]
    codes = pa.array([known.index(one) if one else None for one in names], pa.int32())
    # a row for each line: None where the hint matched nothing
    where = _positions(rows, len(line))
    return pa.DictionaryArray.from_arrays(
        codes.take(word.indices).take(where), pa.array(known, pa.string())
    )


def have_level(line: pa.Array, least: str) -> pa.Array:
    """Return which lines have at least a level; faster than `find_levels`, with the same result."""
    wanted = levels_from(least)
    lower = LEVELS[: LEVELS.index(least)]
    head = pc.binary_slice(line, 0, SEARCHED)
    found = pc.match_substring_regex(head, level_pattern(wanted))
    some = head.filter(found)
    # the first word counts: look again where a line has other ones, or a priority
    others = level_pattern(lower) if lower else "^<[0-9]{1,3}>"
    is_open = pc.match_substring_regex(some, others)
    levels = find_levels(some.filter(is_open)).cast(pa.string())
    is_wanted = pc.is_in(levels, pa.array(wanted))
    known = pc.replace_with_mask(pc.invert(is_open), is_open, is_wanted)
    return pc.replace_with_mask(found, found, known)


def _positions(rows: pa.Array, length: int) -> pa.Array:
    """Return for each of `length` numbers its index in the sorted `rows`, None for the others."""
    return pc.index_in(pa.arange(0, length), rows.cast(pa.int64()))
