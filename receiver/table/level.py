"""The severity of lines, found by a regular expression of RE2 in all lines at once."""

import pyarrow as pa
import pyarrow.compute as pc

from nats_logship.wire.levels import (
    JSON_LEVEL,
    LEVEL_HINT,
    LEVEL_OF,
    LEVEL_OF_NUMBER,
    LEVEL_PATTERN,
    LEVELS,
    SEARCHED,
    SEARCHED_OF_JSON,
    level_pattern,
    levels_from,
)


def find_levels(line: pa.Array) -> pa.Array:
    """Return the level of each line, None for none."""
    return _find_in(_heads(line.cast(pa.binary())))


def _find_in(head: pa.Array) -> pa.Array:
    rows = pc.indices_nonzero(pc.match_substring_regex(head, LEVEL_HINT))
    if not len(rows):
        return pa.nulls(len(head), pa.dictionary(pa.int32(), pa.string()))
    found = pc.extract_regex(head.take(rows), LEVEL_PATTERN)
    word = pc.binary_join_element_wise(
        *(pc.fill_null(found.field(number), b"") for number in range(4)), b""
    ).dictionary_encode()
    names = [LEVEL_OF.get(one.as_py().decode().lower()) for one in word.dictionary]
    known = [*dict.fromkeys(filter(None, names))]
    codes = pa.array([known.index(one) if one else None for one in names], pa.int32())
    # a row for each line: None where the hint matched nothing
    where = _positions(rows, len(head))
    return pa.DictionaryArray.from_arrays(
        codes.take(word.indices).take(where), pa.array(known, pa.string())
    )


def have_level(line: pa.Array, least: str) -> pa.Array:
    """Return which lines have at least a level; faster than `find_levels`, with the same result."""
    wanted = levels_from(least)
    lower = LEVELS[: LEVELS.index(least)]
    head = _heads(line)
    found = pc.match_substring_regex(head, level_pattern(wanted))
    some = head.filter(found)
    # the first word counts: look again where a line has other ones, or a priority
    others = level_pattern(lower) if lower else "^<[0-9]{1,3}>"
    is_open = pc.match_substring_regex(some, others)
    levels = _find_in(some.filter(is_open)).cast(pa.string())
    is_wanted = pc.is_in(levels, pa.array(wanted))
    known = pc.replace_with_mask(pc.invert(is_open), is_open, is_wanted)
    return pc.replace_with_mask(found, found, known)


def _heads(line: pa.Array) -> pa.Array:
    """Return what is searched of each line: its beginning, or `level=` and the level of JSON."""
    # cut in bytes: a character that is cut in half matters to no pattern
    head = pc.binary_slice(line, 0, SEARCHED)
    rows = pc.indices_nonzero(pc.starts_with(head, "{"))
    if not len(rows):
        return head
    whole = pc.binary_slice(line, 0, SEARCHED_OF_JSON).take(rows)
    found = pc.extract_regex(whole, JSON_LEVEL)
    has_level = pc.is_valid(found)
    word = found.field(0).filter(has_level).dictionary_encode()
    words = (one.as_py().decode() for one in word.dictionary)
    names = [f"level={LEVEL_OF_NUMBER.get(one, one)}".encode() for one in words]
    is_named = pc.is_valid(_positions(rows.filter(has_level), len(line)))
    return pc.replace_with_mask(head, is_named, pa.array(names, pa.binary()).take(word.indices))


def _positions(rows: pa.Array, length: int) -> pa.Array:
    """Return for each of `length` numbers its index in the sorted `rows`, None for the others."""
    return pc.index_in(pa.arange(0, length), rows.cast(pa.int64()))
