"""The severity of a line, as most programs write it.

Of JSON the level is the value of the first key such as `"level":`: a word, or a number as bunyan
and pino write it. Of another line, or JSON without one, a word counts in capitals, after a key such
as `level=`, or in brackets as nginx and Apache write it; so does syslog's priority (`<11>`) at the
beginning of a line. Only the beginning of a line is searched, and the first hit counts.
"""

from functools import lru_cache
from typing import Any

from nats_logship.wire.expressions import Expression, expression, matching_runs

SEARCHED, SEARCHED_OF_JSON = 160, 4096
"""Bytes of a line that are searched, and of one that begins with a brace."""
_WORDS = {
    "trace": ("trace", "trc", "verbose"),
    "debug": ("debug", "dbg"),
    "info": ("info", "information", "notice", "inf"),
    "warning": ("warning", "warn", "wrn"),
    "error": ("error", "err", "severe"),
    "critical": ("critical", "crit", "fatal", "panic", "alert", "emerg", "emergency", "ftl"),
}
LEVELS = tuple(_WORDS)
"""The levels of lines, the least first."""
_OF_SEVERITY = ("critical", "critical", "critical", "error", "warning", "info", "info", "debug")
_OF_PRIORITY = {str(number): _OF_SEVERITY[number % 8] for number in range(192)}
LEVEL_OF = {word: level for level, words in _WORDS.items() for word in words} | _OF_PRIORITY
"""The level of each word, and of each priority: 8 times syslog's facility and its severity."""
LEVEL_OF_NUMBER = {str(at): level for at, level in zip(range(10, 70, 10), LEVELS, strict=True)}
"""The level of each number in JSON: trace is 10, critical 60."""
_KEYS = "level|LEVEL|Level|levelname|lvl|severity|Severity|SEVERITY"


def _list_texts(levels: tuple[str, ...]) -> tuple[str, str]:
    """Return alternatives of an expression: the words of levels, and the same in capitals."""
    words = sorted((word for level in levels for word in _WORDS[level]), key=len, reverse=True)
    return "|".join(words), "|".join(word.upper() for word in words)


def level_pattern(levels: tuple[str, ...]) -> str:
    """Return a pattern that finds a word of one of the levels, or any priority, in a group."""
    texts, capitals = _list_texts(levels)
    return (
        rf"\b(?P<a>{capitals})\b"
        rf"""|\b(?:{_KEYS})["']?\s?[=:]\s?["']?(?P<b>(?i:{texts}))\b"""
        rf"|\[(?:[a-z_]+:)?(?P<c>{texts})\]|^<(?P<d>[0-9]{{1,3}})>"
    )


_ANY, _CAPITALS = _list_texts(LEVELS)
LEVEL_PATTERN = level_pattern(LEVELS)
"""Finds the word, in one of its groups."""
JSON_LEVEL = rf"""^\{{.*?\b(?:{_KEYS})"\s?:\s?"?(?P<a>(?i:{_ANY})\b|[1-6]0\b)"""
"""Finds the level of JSON, in its group."""
LEVEL_HINT = rf"{_CAPITALS}|{_KEYS}|\[[a-z_:]*(?:{_ANY})\]|^<[0-9]{{1,3}}>"
"""Matches every line that `LEVEL_PATTERN` matches, and is several times as fast."""


def levels_from(least: str) -> tuple[str, ...]:
    """Return a level and the higher ones; raises ValueError if there is no such level."""
    if least not in LEVELS:
        raise ValueError(f"{least!r} is no level: give one of {', '.join(LEVELS)}")
    return LEVELS[LEVELS.index(least) :]


def find_level(line: bytes) -> str:
    """Return the level of a line, empty if the line names none."""
    if line.startswith(b"{") and (found := _compile(JSON_LEVEL).search(line[:SEARCHED_OF_JSON])):
        word = found[1].decode().lower()
        return LEVEL_OF_NUMBER.get(word) or LEVEL_OF[word]
    found = _compile(LEVEL_PATTERN).search(line[:SEARCHED])
    word = next(filter(None, found.groups()), b"").decode() if found else ""
    return LEVEL_OF.get(word.lower(), "")


@lru_cache(maxsize=8)
def hint_of(least: str) -> Expression:
    """Return an expression that matches every line of a level, or of a higher one."""
    wanted = levels_from(least)
    texts, capitals = _list_texts(wanted)
    numbers = "|".join(number for number, level in _OF_PRIORITY.items() if level in wanted)
    of_json = "|".join(number for number, level in LEVEL_OF_NUMBER.items() if level in wanted)
    return expression(
        rf"""(?:{capitals}|(?:{_KEYS})["']?\s?[=:]\s?["']?(?:(?i:{texts})|{of_json})"""
        rf"|[[:](?:{texts})\]|^<(?:{numbers})>)"
    )


def level_runs(least: str, lines: bytes | bytearray, start: int, end: int) -> list[tuple[int, int]]:
    """Return the half-open ranges of the lines in `[start, end)` with at least a level."""
    wanted, found = levels_from(least), list[tuple[int, int]]()
    for begin, until in matching_runs((hint_of(least),), lines, start, end):
        while begin < until:
            after = lines.find(b"\n", begin, until) + 1 or until
            line = bytes(lines[begin : min(after, begin + SEARCHED_OF_JSON)])
            if find_level(line.rstrip(b"\n")) in wanted:
                found.append((begin, after))
            begin = after
    return found


@lru_cache(maxsize=2)
def _compile(pattern: str) -> Any:
    import re2  # a library that hosts without expressions do not need

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(pattern.encode(), options)
