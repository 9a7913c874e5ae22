"""The time that lines name themselves, in the forms that many programs write.

| form | example |
|---|---|
| ISO 8601, RFC 3339; UTC without a zone | `2026-11-20T14:03:05.123Z`, `2026-11-20 14:03:05,123` |
| in JSON behind its key, else as in other lines | `{"msg":"x","time":"2026-11-20T14:03:05Z"}` |
| nginx, Apache | `[20/Nov/2026:14:03:05 +0100]` |
| syslog; without a year: the last one before storage | `Nov 20 14:03:05` |

Each form is searched in the lines that have none of the forms before. Arrow cuts and reads all
lines that have their time where another line has it. RE2 finds it in the others, which is slower.
"""

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_SEARCHED = 128  # bytes of a line, if it is not JSON
_MOST_SHAPES = 4  # each takes a pass over lines
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
_KEY = r'"(?:@?time|@?timestamp|ts|@t|date|datetime|asctime)" ?: ?"'
_LONGEST = 40  # bytes of a time
_AHEAD = pa.scalar(24 * 3600 * 1_000_000, pa.duration("us"))  # of UTC, for zones and clocks


class _Shape(NamedTuple):
    """Where a line has its time, behind which bytes; those of the fraction and of the zone."""

    start: int
    before: bytes
    digits: int
    zone: int


def read_times(line: pa.Array, stored_at: pa.Array) -> pa.Array:
    """Return the time of each line in UTC, None for none; `stored_at` is when it was stored."""
    whole = line.cast(pa.binary())
    head = pc.binary_slice(whole, 0, _SEARCHED)
    times = _read_json(whole)
    times = _or_else(times, partial(_read_iso, "^"), head)
    times = _or_else(times, _read_syslog, head, stored_at)
    times = _or_else(times, _read_access, head)
    times = _or_else(times, partial(_read_iso, ""), head)
    return times.cast(pa.timestamp("us", "UTC"))


def _or_else(times: pa.Array, read: Callable[..., pa.Array], *columns: pa.Array) -> pa.Array:
    """Return times, and what `read` finds in the lines that have none."""
    if times.null_count == len(times):
        return read(*columns)
    if not times.null_count:
        return times
    rest = pc.is_null(times)
    return pc.replace_with_mask(times, rest, read(*(one.filter(rest) for one in columns)))


def _read_json(raw: pa.Array) -> pa.Array:
    is_json = pc.starts_with(raw, "{")
    return _fill(is_json, _read_iso(_KEY, raw.filter(is_json)))


def _read_iso(lead: str, raw: pa.Array) -> pa.Array:
    """Return the first time of each line behind the pattern `lead`."""
    shape = _find_shape(lead, raw[0].as_py()) if len(raw) else None
    times = _read_shape(shape, raw) if shape else pa.nulls(len(raw), _TIME)
    return _or_else(times, partial(_read_other_iso, lead), raw)


def _read_other_iso(lead: str, raw: pa.Array) -> pa.Array:
    has_time = pc.match_substring_regex(raw, lead + _SECONDS)
    lines = raw.filter(has_time)
    times = pa.nulls(len(lines), _TIME)
    for _ in range(_MOST_SHAPES):
        number = pc.index(pc.is_null(times), True).as_py()
        if number >= 0 and (shape := _find_shape(lead, lines[number].as_py())):
            times = _or_else(times, partial(_read_shape, shape), lines)
    return _fill(has_time, _or_else(times, partial(_search_iso, lead), lines))


def _find_shape(lead: str, line: bytes) -> _Shape | None:
    hit = _compile(lead + _ISO).search(line)
    if hit is None:
        return None
    start, before = hit.start(), line[hit.start() : hit.start("s")]
    return _Shape(start, before, len(hit["f"] or b""), len(hit["z"] or b""))


@lru_cache(8)
def _compile(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode())


@lru_cache(64)
def _pattern_of(before: bytes, digits: int, zone: int) -> str:
    """Return the pattern of a time with so many digits and bytes of a zone, and nothing behind."""
    fraction = rf"[.,][0-9]{{{digits}}}" if digits else ""
    zones = {0: "", 1: "Z", 5: r"[+-][0-9]{4}", 6: r"[+-][0-9]{2}:[0-9]{2}"}
    return rf"^{re.escape(before.decode())}{_SECONDS}{fraction}{zones[zone]}(?:[^0-9.,Z+-]|$)"


def _read_shape(shape: _Shape, raw: pa.Array) -> pa.Array:
    """Return the times of lines that have the very shape."""
    start, before, digits, zone = shape
    text = pc.binary_slice(raw, start, start + len(before) + _LONGEST)
    is_same = pc.match_substring_regex(text, _pattern_of(before, digits, zone))
    same, begin = text.filter(is_same), len(before)
    fraction, behind = begin + 20, begin + 19 + bool(digits) + digits
    times = _add_up(
        pc.binary_slice(same, begin, begin + 19),
        pc.binary_slice(same, fraction, fraction + min(digits, 6)) if digits else None,
        pc.binary_slice(same, behind, behind + zone) if zone > 1 else None,
    )
    return _fill(is_same, times)


def _search_iso(lead: str, raw: pa.Array) -> pa.Array:
    parts = pc.extract_regex(raw, lead + _ISO)
    digits = pc.ascii_rpad(parts.field("f").cast(pa.string()), 6, "0").cast(pa.binary())
    return _add_up(parts.field("s"), pc.binary_slice(digits, 0, 6), parts.field("z"))


def _read_access(raw: pa.Array) -> pa.Array:
    """Read the time behind the first bracket of each line."""
    lists = pc.split_pattern(raw, "[", max_splits=1)
    has_bracket = pc.equal(pc.list_value_length(lists), 2)
    begins = pc.add(lists.offsets.slice(0, len(raw)), 1).filter(has_bracket)
    text = lists.flatten().take(begins)
    fits = pc.match_substring_regex(text, rf"^{_ACCESS}")
    text, where = text.filter(fits), _narrow(has_bracket, fits)
    cut = partial(pc.binary_slice, text)
    days = _join(cut(7, 11), b"-", _month_numbers(cut(3, 6)), b"-", cut(0, 2), b"T", cut(12, 20))
    return _fill(where, _checked(days, cut(21, 26)))


def _read_syslog(raw: pa.Array, stored_at: pa.Array) -> pa.Array:
    text = pc.binary_slice(raw, 0, 15)
    fits = pc.match_substring_regex(text, rf"^{_SYSLOG}")
    text, latest = text.filter(fits), pc.add(stored_at.filter(fits).cast(_TIME), _AHEAD)
    cut = partial(pc.binary_slice, text)
    day = pc.replace_substring(cut(4, 6), " ", "0")
    months = _month_numbers(cut(0, 3))
    is_before = pc.greater(months.cast(pa.string()).cast(pa.int64()), pc.month(latest))
    year = pc.subtract(pc.year(latest), is_before.cast(pa.int64()))
    year = year.cast(pa.string()).cast(pa.binary())
    days = _join(year, b"-", months, b"-", day, b"T", cut(7, 15))
    return _fill(fits, _checked(days, None))


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
