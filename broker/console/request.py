"""What a page asks for: which lines, of which time, and in which order."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from nats_logship.app.selection import LineSelection
from nats_logship.app.timestamps import Moment
from nats_logship.app.units import parse_range
from nats_logship.client.line_search import LineFilter
from nats_logship.history import Order

MOST_LINES = 1000
"""Lines of one answer, and new lines of a second."""
_MOST_BUCKETS = 500  # of a histogram
_MOST_CHARACTERS = 500  # of globs, and of an expression
_ORDERS = {"": Order.NEWEST, "last": Order.NEWEST, "first": Order.OLDEST}


@dataclass(frozen=True, slots=True)
class LineRequest:
    """Lines that are `wanted` and were stored in `[since, until)`; None is no bound.

    The first `most` lines in `order`, and a histogram of about so many `buckets` of all, 0 meaning
    none. The last lines up to now are followed by new ones.
    """

    wanted: LineFilter
    since: Moment | None
    until: Moment | None
    order: Order
    most: int
    buckets: int

    @property
    def is_followed(self) -> bool:
        """Whether new lines belong to it."""
        return self.until is None and self.order is Order.NEWEST


def parse_line_request(parameters: Mapping[str, str], now: datetime) -> LineRequest:
    """Read the parameters of a page; raises ValueError for an invalid value.

    Compiles an expression and globs, which takes a while: call it in a thread.
    """
    given = defaultdict(str, parameters)
    hosts, files, match = given["host"], given["file"], given["match"]
    if max(len(hosts), len(files), len(match)) > _MOST_CHARACTERS:
        raise ValueError(f"globs and expressions have at most {_MOST_CHARACTERS} characters")
    selection = LineSelection(tuple(hosts.split()), tuple(files.split()))
    selection.wants_host(""), selection.wants_file("x")  # fnmatch keeps what it has compiled
    if given["order"] not in _ORDERS:
        raise ValueError("order must be first or last")
    zones = _find_zones(given["zone"])
    ranges = {parse_range(given["since"], given["until"], now, one) for one in zones}
    if len(ranges) > 1:
        raise ValueError(f"{given['zone']!r} is not a time zone of this machine: choose UTC")
    since, until = ranges.pop()
    return LineRequest(
        wanted=LineFilter(selection, match=match, level=given["level"]),
        since=since,
        until=until,
        order=_ORDERS[given["order"]],
        most=parse_number("count", given["count"] or "100", MOST_LINES),
        buckets=parse_number("buckets", given["buckets"] or "0", _MOST_BUCKETS),
    )


def parse_number(name: str, text: str, most: int) -> int:
    """Read a number from 0 to `most`; raises ValueError."""
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= most):
        raise ValueError(f"{name} must be a number up to {most}")
    return int(text)


def _find_zones(name: str) -> tuple[tzinfo, ...]:
    """Return a time zone by its name, by default UTC; any two if this machine does not know it."""
    try:
        return (ZoneInfo(name) if name else UTC,)
    except (ValueError, KeyError, OSError):
        return UTC, timezone(timedelta(hours=1))
