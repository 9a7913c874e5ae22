"""The time that lines name themselves, in the forms that many programs write.

| form | example |
|---|---|
| ISO 8601, RFC 3339; UTC without a zone | `2026-11-20T14:03:05.123Z`, `2026-11-20 14:03:05,123` |
| nginx, Apache | `[20/Nov/2026:14:03:05 +0100]` |
| syslog; without a year: the last one before storage | `Nov 20 14:03:05` |

The first line of a part shows the form of all of its lines. So Python looks at one line of each
part, and Arrow cuts and reads the others: a line in another form has no time.
"""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum
from functools import lru_cache, partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from nats_logship.app.timestamps import to_datetime

_SEARCHED = 128  # bytes of the first line
_MOST_SHAPES = 8  # in a row group: each takes a pass over its lines
_TIME = pa.timestamp("us")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "|".join(_MONTHS)
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_DAY = (
    r"(?:(?:19|20|21)[0-9]{2}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    r"|(?:19|20|21)(?:0[48]|[2468][048]|[13579][26])-02-29|2000-02-29)"
)
_SECONDS = rf"{_DAY}[T ]{_CLOCK}"
_ZONE = r"Z|[+-][0-9]{2}:?[0-9]{2}"
_ISO = rf"(?P<s>{_SECONDS})(?:[.,](?P<f>[0-9]{{1,9}}))?(?P<z>{_ZONE})?"
_ACCESS = rf"[0-3][0-9]/(?:{_MONTH})/[0-9]{{4}}:{_CLOCK} [+-][0-9]{{4}}\]"
_SYSLOG = rf"(?:{_MONTH}) [ 1-3][0-9] {_CLOCK}"
_LONGEST = 40  # bytes of a time
_AHEAD = timedelta(days=1)  # of UTC, for zones and clocks


class _Form(Enum):
    NONE = ""
    ISO = _ISO
    ACCESS = rf"\[{_ACCESS}"
    SYSLOG = rf"^{_SYSLOG}"


class _Shape(NamedTuple):
    """Where a time is in a line; `start`, `digits` of the fraction and `zone` are in bytes.

    No time is later than `month` of `year`.
    """

    form: _Form
    start: int = 0
    digits: int = 0
    zone: int = 0
    year: int = 0
    month: int = 0


_NONE = _Shape(_Form.NONE)
_FIRST = [(form, re.compile(form.value.encode())) for form in _Form if form is not _Form.NONE]


def find_times(
    line: pa.Array, parents: pa.Array, first: pa.Array, stored_at: Sequence[int]
) -> pa.Array:
    """Return the time of each line in UTC, None for none.

    `parents` has the part of each line, `first` the first line of each part, and `stored_at` when
    each part was stored (nanoseconds since the epoch).
    """
    shapes = [
        _find_shape(text or b"", at)
        for text, at in zip(
            pc.binary_slice(first.cast(pa.binary()), 0, _SEARCHED).to_pylist(),
            stored_at,
            strict=True,
        )
    ]
    known = [one for one in dict.fromkeys(shapes) if one is not _NONE][:_MOST_SHAPES]
    found = pa.nulls(len(line), _TIME)
    raw = line.cast(pa.binary())
    if len(known) == 1 and known[0] == shapes[0] and _NONE not in shapes:
        return _READ[known[0].form](raw, known[0]).cast(pa.timestamp("us", "UTC"))
    numbers = {shape: number for number, shape in enumerate(known)}
    codes = pa.array([numbers.get(one) for one in shapes], pa.int8()).take(parents)
    for shape, number in numbers.items():
        is_it = pc.fill_null(pc.equal(codes, number), False)
        times = _READ[shape.form](raw.filter(is_it), shape)
        found = pc.replace_with_mask(found, is_it, times)
    return found.cast(pa.timestamp("us", "UTC"))


def _find_shape(line: bytes, stored_at: int) -> _Shape:
    hits = [(one.start(), form, one) for form, regex in _FIRST if (one := regex.search(line))]
    if not hits:
        return _NONE
    start, form, hit = min(hits, key=lambda one: one[0])
    match form:
        case _Form.ISO:
            return _Shape(form, start, len(hit["f"] or b""), len(hit["z"] or b""))
        case _Form.SYSLOG:
            latest = to_datetime(stored_at) + _AHEAD
            return _Shape(form, year=latest.year, month=latest.month)
        case _:
            return _Shape(form)


@lru_cache(64)
def _pattern_of(digits: int, zone: int) -> str:
    """Return the pattern of a time with so many digits and bytes of a zone, and nothing behind."""
    fraction = rf"[.,][0-9]{{{digits}}}" if digits else ""
    zones = {0: "", 1: "Z", 5: r"[+-][0-9]{4}", 6: r"[+-][0-9]{2}:[0-9]{2}"}
    return rf"^{_SECONDS}{fraction}{zones[zone]}(?:[^0-9.,Z+]|$)"


def _read_iso(raw: pa.Array, shape: _Shape) -> pa.Array:
    """Read lines whose times have the very shape at once, and the others by a slower pattern."""
    text = pc.binary_slice(raw, shape.start, shape.start + _LONGEST)
    is_same = pc.match_substring_regex(text, _pattern_of(shape.digits, shape.zone))
    same = text.filter(is_same)
    behind = 19 + bool(shape.digits) + shape.digits
    times = _add_up(
        pc.binary_slice(same, 0, 19),
        pc.binary_slice(same, 20, 20 + min(shape.digits, 6)) if shape.digits else None,
        pc.binary_slice(same, behind, behind + shape.zone) if shape.zone > 1 else None,
    )
    if len(same) == len(text):
        return times
    found = pc.replace_with_mask(pa.nulls(len(text), _TIME), is_same, times)
    is_other = pc.and_(pc.invert(is_same), pc.match_substring_regex(text, rf"^{_SECONDS}"))
    other = pc.extract_regex(text.filter(is_other), rf"^{_ISO}")
    if not len(other):
        return found
    digits = pc.ascii_rpad(other.field("f").cast(pa.string()), 6, "0")
    times = _add_up(
        other.field("s"), pc.binary_slice(digits.cast(pa.binary()), 0, 6), other.field("z")
    )
    return pc.replace_with_mask(found, is_other, times)


def _read_access(raw: pa.Array, _: _Shape) -> pa.Array:
    """Read the time behind the first bracket of each line."""
    lists = pc.split_pattern(pc.binary_slice(raw, 0, 4 * _SEARCHED), "[", max_splits=1)
    has_bracket = pc.equal(pc.list_value_length(lists), 2)
    begins = pc.add(lists.offsets.slice(0, len(raw)), 1).filter(has_bracket)
    text = lists.flatten().take(begins)
    fits = pc.match_substring_regex(text, rf"^{_ACCESS}")
    text, where = text.filter(fits), _narrow(has_bracket, fits)
    cut = partial(pc.binary_slice, text)
    days = _join(cut(7, 11), b"-", _month_numbers(cut(3, 6)), b"-", cut(0, 2), b"T", cut(12, 20))
    return _fill(where, _checked(days, cut(21, 26)))


def _read_syslog(raw: pa.Array, shape: _Shape) -> pa.Array:
    text = pc.binary_slice(raw, 0, 15)
    fits = pc.match_substring_regex(text, rf"^{_SYSLOG}")
    text = text.filter(fits)
    cut = partial(pc.binary_slice, text)
    day = pc.replace_substring(cut(4, 6), " ", "0")
    months = _month_numbers(cut(0, 3))
    is_before = pc.greater(months, pa.scalar(b"%02d" % shape.month, pa.binary()))
    year = pc.if_else(is_before, b"%d" % (shape.year - 1), b"%d" % shape.year)
    days = _join(year, b"-", months, b"-", day, b"T", cut(7, 15))
    return _fill(fits, _checked(days, None))


_READ: dict[_Form, Callable[[pa.Array, _Shape], pa.Array]] = {
    _Form.ISO: _read_iso,
    _Form.ACCESS: _read_access,
    _Form.SYSLOG: _read_syslog,
}


def _join(*parts: pa.Array | bytes) -> pa.Array:
    arrays = [pa.scalar(one, pa.binary()) if isinstance(one, bytes) else one for one in parts]
    return pc.binary_join_element_wise(*arrays, pa.scalar(b"", pa.binary()))


def _month_numbers(names: pa.Array) -> pa.Array:
    number = pc.index_in(names, pa.array([one.encode() for one in _MONTHS], pa.binary()))
    return pa.array([b"%02d" % (one + 1) for one in range(12)], pa.binary()).take(number)


def _narrow(outer: pa.Array, inner: pa.Array) -> pa.Array:
    """Return which of all rows are those of `inner`, which has a value for each hit of `outer`."""
    return pc.replace_with_mask(outer, outer, inner)


def _fill(where: pa.Array, times: pa.Array) -> pa.Array:
    return pc.replace_with_mask(pa.nulls(len(where), _TIME), where, times)


def _checked(seconds: pa.Array, zone: pa.Array | None) -> pa.Array:
    """Return times, None for days that no calendar has."""
    fits = pc.match_substring_regex(seconds, rf"^{_SECONDS}$")
    zone = None if zone is None else zone.filter(fits)
    return _fill(fits, _add_up(seconds.filter(fits), None, zone))


def _add_up(seconds: pa.Array, fraction: pa.Array | None, zone: pa.Array | None) -> pa.Array:
    """Return times in UTC of `YYYY-MM-DDTHH:MM:SS`, at most six digits, and zones."""
    total = seconds.cast(pa.string()).cast(_TIME).cast(pa.int64())
    if fraction is not None:
        digits = pc.fill_null(fraction.cast(pa.string()), "0")
        digits = pc.ascii_rpad(digits, 6, "0")
        total = pc.add(total, digits.cast(pa.int64()))
    if zone is not None:
        codes = pc.fill_null(zone, b"Z").dictionary_encode()
        ahead = pa.array([_zone_seconds(one.as_py()) for one in codes.dictionary], pa.int64())
        total = pc.subtract(total, pc.multiply(ahead, 1_000_000).take(codes.indices))
    return total.cast(_TIME)


def _zone_seconds(zone: bytes) -> int:
    if zone == b"Z" or not zone:
        return 0
    digits = zone[1:].replace(b":", b"")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if zone.startswith(b"-") else seconds
