"""What is asked of a table: the lines that are wanted, their order, and the conditions in SQL."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from nats_logship.app.selection import LineSelection
from nats_logship.app.timestamps import to_datetime
from nats_logship.wire.expressions import bounded_expression
from nats_logship.wire.levels import levels_from

COLUMNS = (
    "epoch_us(time) * 1000, host, coalesce(file, ''), stream, sequence, pos, "
    "coalesce(raw, encode(line), ''::BLOB), coalesce(level, ''), coalesce(piece, false), record"
)
"""The columns of `Line`."""

_GLOB = re.compile(r"(?P<set>\[!?+\]?+[^]]*\])|[\[\\]")


class Order(Enum):
    """Which lines come first."""

    OLDEST = "ASC"
    NEWEST = "DESC"


@dataclass(frozen=True, slots=True)
class Query:
    """Which lines are wanted: those stored in `[since, until)` that fit everything else.

    `match` is a regular expression of RE2, which is searched in each line; `level` is the least
    level. Both choose whole records, where lines belong to one. With `following` only lines of
    these streams are wanted, from a sequence on. Raises ValueError for a bad expression or level.
    """

    selection: LineSelection = field(default_factory=LineSelection)
    since: int | None = None
    until: int | None = None
    match: str = ""
    level: str = ""
    following: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        """Check the expression and the level."""
        if self.match:
            bounded_expression(self.match)
        if self.level:
            levels_from(self.level)


class Line(NamedTuple):
    """A line without its newline; `stream`, `sequence` and `pos` are its key.

    `stream` has the time of its creation: `LOGS/2026-11-20T10:00:00Z`. `file` is empty for lines of
    other NATS clients. If it `is_piece`, the line goes on in the next one of its file. `record` is
    the `pos` of the line that begins its record, None if that is in an earlier message.
    """

    time: int
    host: str
    file: str
    stream: str
    sequence: int
    pos: int
    line: bytes = b""
    level: str = ""
    is_piece: bool = False
    record: int | None = None

    @property
    def order(self) -> tuple[int, str, int, int, int]:
        """By this lines are ordered: the time in microseconds, then the key of the record."""
        head = self.pos if self.record is None else self.record
        return self.time // 1000, self.stream, self.sequence, head, self.pos


def make_condition(query: Query) -> tuple[str, list[Any]]:
    """Return a condition of SQL for the lines that are wanted, and its parameters."""
    found = [*_conditions(query)]
    condition = " AND ".join(f"({part})" for part, _ in found)
    return condition or "true", [value for _, values in found for value in values]


def _conditions(query: Query) -> Iterator[tuple[str, list[Any]]]:
    """Yield each condition with its parameters."""
    hosts, files = query.selection.hosts, query.selection.files
    match = as_text(query.match)
    of_path = "regexp_extract(file, '[^/]*$') GLOB ?", "file GLOB ?"
    levels = levels_from(query.level) if query.level else ()
    for part, values in (
        ("time >= ?", [] if query.since is None else [to_datetime(query.since)]),
        ("time < ?", [] if query.until is None else [to_datetime(query.until)]),
        (_any_of("host GLOB ?" for _ in hosts), [*map(_translate, hosts)]),
        (_any_of(of_path["/" in glob] for glob in files), [*map(_translate, files)]),
        (
            _any_of("stream = ? AND sequence >= ?" for _ in query.following),
            [value for pair in query.following for value in pair],
        ),
        (_any_of("level = ?" for _ in levels), [*levels]),
        ("regexp_matches(line, ?)", [bounded_expression(match).decode()] if match else []),
    ):
        if values:
            yield part, values


def _any_of(parts: Iterable[str]) -> str:
    return " OR ".join(parts)


def _translate(glob: str) -> str:
    """Return the glob of DuckDB for what `fnmatch` finds: there a backslash is a letter."""
    return _GLOB.sub(lambda part: part["set"] or f"\\{part[0]}", as_text(glob))


def as_text(value: str) -> str:
    """Return a text as the table has it: with U+FFFD for bytes that are not UTF-8."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def order_by(order: Order) -> str:
    """Return the clause of SQL that sorts lines."""
    return "ORDER BY " + ", ".join(
        f"{name} {order.value}" for name in ("time", "stream", "sequence", "head", "pos")
    )
