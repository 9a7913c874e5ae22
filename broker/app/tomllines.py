"""On which line of a TOML file a key stands, and a fault, neither of which its parser tells well. Judges no key.

A text is taken apart statement by statement: what parses from one newline to another is whole, since whatever goes on
over several lines (a text, a list) cannot be parsed without its end.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Fault", "fault_of", "lines_of_keys"]

_PLACE = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a text, and where; line and column count from 1, and a column of 0 is unknown."""

    line: int
    column: int
    reason: str

    def __str__(self) -> str:
        """Say it as compilers do, to be put behind a file's name."""
        column = f":{self.column}" if self.column else ""
        return f"{self.line}{column}: {self.reason}"


@dataclass(frozen=True, slots=True)
class _Statement:
    line: int
    is_header: bool
    keys: tuple[str, ...]
    is_whole: bool


def lines_of_keys(text: str) -> dict[str, int]:
    """Return the line, counted from 1, on which each top-level key of a TOML text is first written."""
    found: dict[str, int] = {}
    in_table = False
    for statement in _statements(text):
        in_table = in_table or statement.is_header
        if statement.is_header or not in_table:
            for key in statement.keys:
                found.setdefault(key, statement.line)
    return found


def fault_of(text: str, error: Exception) -> Fault:
    """Return where a text is at fault that `tomllib` refused with `error`."""
    said = str(error)
    place = _PLACE.search(said)
    if place and place["line"]:
        return Fault(int(place["line"]), int(place["column"]), said[: place.start()])
    reason = said[: place.start()] if place else said
    if isinstance(error, RecursionError):
        reason = "nested too deeply"
    begun = next((one.line for one in _statements(text) if not one.is_whole), None)
    return Fault(begun or text.count("\n") + 1, 0, reason)


def _statements(text: str) -> Iterator[_Statement]:
    pending: list[str] = []
    begun, is_header = 1, False
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not pending:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            begun, is_header = number, line.lstrip().startswith("[")
        pending.append(line)
        keys = _keys("\n".join(pending))
        if keys is not None:
            yield _Statement(begun, is_header, keys, is_whole=True)
            pending = []
    if pending:
        yield _Statement(begun, is_header, (), is_whole=False)


def _keys(statement: str) -> tuple[str, ...] | None:
    try:
        return tuple(tomllib.loads(statement))
    except (ValueError, RecursionError):
        return None
