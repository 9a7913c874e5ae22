"""The severity of lines, found by a regular expression of RE2 in all lines at once.

A word counts in capitals, after a key such as `level=` or `"severity":`, or in brackets as nginx
and Apache write it. Only the beginning of a line is searched, and the first hit counts.
"""

import pyarrow as pa
import pyarrow.compute as pc

_SEARCHED = 160  # bytes of a line
_LEVELS = {
    "trace": ("trace", "trc", "verbose"),
    "debug": ("debug", "dbg"),
    "info": ("info", "information", "notice", "inf"),
    "warning": ("warning", "warn", "wrn"),
    "error": ("error", "err", "severe"),
    "critical": ("critical", "crit", "fatal", "panic", "alert", "emerg", "emergency", "ftl"),
}
"""Names of levels, with the words that mean them."""
_OF_WORD = {word: level for level, words in _LEVELS.items() for word in words}
_LONGEST_FIRST = sorted(_OF_WORD, key=len, reverse=True)
_ANY = "|".join(_LONGEST_FIRST)
_CAPITALS = "|".join(word.upper() for word in _LONGEST_FIRST)
_KEYS = "level|LEVEL|Level|lvl|severity|Severity|SEVERITY"
_PATTERN = (
    rf"\b(?P<a>{_CAPITALS})\b"
    rf"""|\b(?:{_KEYS})["']?\s?[=:]\s?["']?(?P<b>(?i:{_ANY}))\b"""
    rf"|\[(?:[a-z_]+:)?(?P<c>{_ANY})\]"
)
_HINT = rf"{_CAPITALS}|{_KEYS}|\[[a-z_:]*(?:{_ANY})\]"
"""Matches every line that `_PATTERN` matches, and is several times as fast."""


def find_levels(line: pa.Array) -> pa.Array:
    """Return the level of each line, None for none."""
    # cut in bytes: a character that is cut in half matters to no pattern
    head = pc.binary_slice(line.cast(pa.binary()), 0, _SEARCHED)
    rows = pc.indices_nonzero(pc.match_substring_regex(head, _HINT))
    if not len(rows):
        return pa.nulls(len(line), pa.dictionary(pa.int32(), pa.string()))
    found = pc.extract_regex(head.take(rows), _PATTERN)
    word = pc.binary_join_element_wise(
        *(pc.fill_null(found.field(number), b"") for number in range(3)), b""
    ).dictionary_encode()
    names = [_OF_WORD.get(one.as_py().decode().lower()) for one in word.dictionary]
    known = [*dict.fromkeys(filter(None, names))]
    codes = pa.array([known.index(one) if one else None for one in names], pa.int32())
    # a row for each line: None where the hint matched nothing
    where = _positions(rows, len(line))
    return pa.DictionaryArray.from_arrays(
        codes.take(word.indices).take(where), pa.array(known, pa.string())
    )


def _positions(rows: pa.Array, length: int) -> pa.Array:
    """Return for each of `length` numbers its index in the sorted `rows`, None for the others."""
    return pc.index_in(pa.arange(0, length), rows.cast(pa.int64()))
