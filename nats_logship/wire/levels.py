"""The severity of lines, from the least to the worst of `LEVELS`, as tables and searches find it.

A word counts in capitals, after a key such as `level=` or `"severity":`, or in brackets as nginx
and Apache write it; so does a priority of syslog (`<11>`) that begins the line. Only the beginning
of a line is searched, and the first hit counts.
"""

import re
from collections.abc import Iterator

from nats_logship.wire.expressions import Expression, expression, matching_runs

SEARCHED = 160
"""Bytes of a line that are searched."""
_WORDS = {
    "trace": ("trace", "trc", "verbose"),
    "debug": ("debug", "dbg"),
    "info": ("info", "information", "notice", "inf"),
    "warning": ("warning", "warn", "wrn"),
    "error": ("error", "err", "severe"),
    "critical": ("critical", "crit", "fatal", "panic", "alert", "emerg", "emergency", "ftl"),
}
"""Names of levels, with the words that mean them."""
LEVELS = tuple(_WORDS)
"""The levels of lines, the least first."""
_PRIORITIES = ("critical", "critical", "critical", "error", "warning", "info", "info", "debug")
"""The levels of syslog's severities: a priority is eight times the facility, and the severity."""
LEVEL_OF = {word: level for level, words in _WORDS.items() for word in words} | {
    str(priority): _PRIORITIES[priority % 8] for priority in range(192)
}
"""The level of each word, in small letters, and of each priority."""
_LONGEST_FIRST = sorted((word for words in _WORDS.values() for word in words), key=len)[::-1]
_KEYS = "level|LEVEL|Level|lvl|severity|Severity|SEVERITY"


def _pattern(words: str) -> str:
    capitals = words.upper()
    return (
        rf"^<(?P<d>[0-9]{{1,3}})>|\b(?P<a>{capitals})\b"
        rf"""|\b(?:{_KEYS})["']?\s?[=:]\s?["']?(?P<b>(?i:{words}))\b"""
        rf"|\[(?:[a-z_]+:)?(?P<c>{words})\]"
    )


def _hint(words: str) -> str:
    return rf"^<[0-9]{{1,3}}>|{words.upper()}|(?:{_KEYS})\W|\[[a-z_:]*(?:{words})\]"


PATTERN = _pattern("|".join(_LONGEST_FIRST))
"""Of RE2: finds a word or a priority, in one of the groups `a` to `d`."""
HINT = _hint("|".join(_LONGEST_FIRST))
"""Of RE2: matches every line that `PATTERN` matches, and is several times as fast."""
_FIND = re.compile(PATTERN.encode()).search


def find_level(line: bytes) -> str:
    """Return the level of a line, empty for none."""
    found = _FIND(line[:SEARCHED])
    word = found and (found["a"] or found["b"] or found["c"] or found["d"])
    return LEVEL_OF.get(word.decode().lower(), "") if word else ""


_HINTS: dict[int, Expression] = {}


def find_level_lines(
    lines: bytes, least: str, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, int, str]]:
    """Yield the lines in `[start, end)` of a level or a worse one: their ranges, and the level."""
    rank = LEVELS.index(least)
    if rank not in _HINTS:
        words = [word for word in _LONGEST_FIRST if LEVELS.index(LEVEL_OF[word]) >= rank]
        _HINTS[rank] = expression(_pattern("|".join(words)))
    for first, last in matching_runs((_HINTS[rank],), lines, start, end):
        at = first
        while at < last:
            behind = lines.find(b"\n", at, last) + 1 or last
            level = find_level(lines[at : min(behind, at + SEARCHED)].removesuffix(b"\n"))
            if level and LEVELS.index(level) >= rank:
                yield at, behind, level
            at = behind
