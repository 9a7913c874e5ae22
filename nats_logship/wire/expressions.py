"""Users' regular expressions over the bytes of lines, searched by RE2.

RE2 needs time in proportion to the bytes, whatever the expression, and releases the interpreter's
lock. An expression sees one line at a time, without its newline. RE2 searches whole blocks, so
Python does no work for each line, only for each run of lines that match.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, NewType

Expression = NewType("Expression", bytes)
"""An expression that `expression` has checked, to be put into a larger one."""

_TOKEN = re.compile(
    rb"\\(?P<letter>.)|\[\^?\]?(?:\\.|[^]\\])*\]|\{,(?P<most>[0-9]+)\}|\(\?[a-z]*-[a-z]*m",
    re.DOTALL | re.IGNORECASE,
)
_FLAGS = re.compile(rb"\(\?[a-zA-Z-]+\)")
_BRACKET = re.compile(rb"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|[(|)]", re.DOTALL)
_IS_FAST = re.compile(rb"(?:\(\?i\))?[A-Za-z0-9 _/:;=,<>\"'-]{3}")
"""Matches expressions that begin with letters: RE2 finds each ten times as fast, if it is alone."""
_MOST_PARTS = 6  # that are searched one by one
_ANCHORS = {b"\\A": b"^", b"\\Z": b"$", b"\\z": b"$"}
# A line's newline is any byte (`\C`): `never_nl` keeps classes and `.` from matching it
_LONGEST = 500  # characters of an expression of a person who searches
_MOST_PROGRAM = 5000  # instructions of it
_MOST_FOR_ALL_LINES = 1000  # instructions: a byte of lines takes some microseconds at most
_FEW, _SPARSE = 16, 2048  # so many matches within so many bytes each are not few
_RUN = rb"(?m)(?:^.*(?:%b).*(?:$\C|\z))+"


def expression(text: str) -> Expression:
    """Check an expression; raises ValueError with the reason."""
    pattern = text.encode("utf-8", "surrogateescape")
    try:
        found = _TOKEN.sub(_in_a_block, pattern)
        _compile(found)
        return Expression(found)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a regular expression of RE2: {error}") from None


def bounded_expression(text: str) -> Expression:
    """Check an expression of a person who searches; as `expression`, and it must not be costly."""
    if len(text) > _LONGEST:
        raise ValueError(f"the expression is longer than {_LONGEST} characters")
    if "\0" in text:
        raise ValueError("the expression has a zero byte")
    found = expression(text)
    _check_size(text, [found], _MOST_PROGRAM)
    return found


def expression_for_all_lines(text: str) -> Expression:
    """Check an expression that every line is searched for; as `expression`, and it must be fast."""
    found = expression(text)
    _check_size(text, [found], _MOST_FOR_ALL_LINES)
    return found


def expression_for_some_lines(text: str) -> Expression:
    """Check an expression that chooses lines; each alternative must be fast, and not match all."""
    found, samples = expression(text), _sample_lines()
    _check_size(text, _split(found), _MOST_FOR_ALL_LINES)
    if matching_runs((found,), b"\n") and matching_runs((found,), samples) == [(0, len(samples))]:
        raise ValueError(
            f"{text!r} matches an empty text, and so every line: write + instead of *, leave out "
            "an empty alternative, or write ^$ for empty lines"
        )
    return found


def _sample_lines() -> bytes:
    """Return a line of each byte, many times, which `^$` or `^.{0,9}$` do not match."""
    return b"".join(bytes([byte]) * 1024 + b"\n" for byte in range(256) if byte != ord("\n"))


def _check_size(text: str, parts: Sequence[bytes], most: int) -> None:
    """Raise ValueError if the program of a part is large: its size bounds the time for a byte."""
    if (size := max(int(_compile(_RUN % part).programsize) for part in parts)) > most:
        raise ValueError(
            f"{text!r} is too large ({size} instructions of at most {most}): use smaller numbers "
            "of repeats"
        )


def matching_runs(
    expressions: Sequence[Expression],
    lines: bytes | bytearray,
    start: int = 0,
    end: int | None = None,
) -> list[tuple[int, int]]:
    """Return the half-open ranges of whole lines in a row that one of the expressions matches.

    Searches the lines in `[start, end)`; the last one may lack its newline. While few lines match,
    RE2 searches for the expressions alone, which it does ten times as fast where they begin with
    letters; then for runs of lines.
    """
    end = len(lines) if end is None else end
    search = _search_of(tuple(expressions))
    found: list[tuple[int, int]] = []
    at = start
    for number, (first, last) in enumerate(_find_lines(search.parts, lines, start, end), 1):
        _append(found, first, last)
        at = last
        if number == _FEW and at - start < _FEW * _SPARSE:
            for one in search.run.finditer(lines, at, end):
                _append(found, *one.span())
            break
    return found


def _find_lines(
    parts: Sequence[Any], lines: bytes | bytearray, start: int, end: int
) -> Iterator[tuple[int, int]]:
    """Yield the lines in which one of the parts is found; each part is searched by itself."""
    hits: list[Any] = [part.search(lines, start, end) for part in parts]
    while any(hits):
        hit = min(filter(None, hits), key=lambda one: one.start())
        begin = max(lines.rfind(b"\n", start, hit.start()) + 1, start)
        if begin == end:
            return  # what matches is nothing, behind the last line
        start = lines.find(b"\n", hit.end(), end) + 1 or end
        yield begin, start
        for number, one in enumerate(hits):
            if one and one.start() < start:
                hits[number] = parts[number].search(lines, start, end) if start < end else None


def _append(runs: list[tuple[int, int]], begin: int, end: int) -> None:
    """Add a run of lines to those before it; those that touch become one."""
    if runs and runs[-1][1] == begin:
        begin = runs.pop()[0]
    runs.append((begin, end))


def _in_a_block(token: re.Match[bytes]) -> bytes:
    """Translate a token of an expression over one line into one over many lines."""
    if token["most"]:
        return b"{0,%b}" % token["most"]
    if token["letter"] in (b"C", b"Q") or token[0].startswith(b"(?"):
        raise ValueError(f"{token[0].decode()} is not supported")
    return _ANCHORS.get(token[0], token[0])


class _Search(NamedTuple):
    """What finds expressions in a line, part by part, and what finds runs of lines with one."""

    parts: tuple[Any, ...]
    run: Any


@lru_cache(maxsize=32)
def _search_of(expressions: tuple[Expression, ...]) -> _Search:
    any_of = b"|".join(b"(?:%b)" % one for one in expressions)
    parts = [part for one in expressions for part in _split(one)]
    fast = [part for part in parts if _IS_FAST.match(part)][:_MOST_PARTS]
    if slow := [part for part in parts if part not in fast]:
        fast.append(b"|".join(b"(?:%b)" % one for one in slow))
    return _Search(tuple(_compile(b"(?m)" + one) for one in fast), _compile(_RUN % any_of))


def _split(pattern: bytes) -> list[bytes]:
    """Return the alternatives of an expression."""
    flags = b"(?i)" if pattern.startswith(b"(?i)") else b""
    body = pattern.removeprefix(flags)
    if _FLAGS.search(body):
        return [pattern]
    cuts, depth = [-1], 0
    for token in _BRACKET.finditer(body):
        match token[0]:
            case b"(":
                depth += 1
            case b")":
                depth -= 1
            case b"|" if not depth:
                cuts.append(token.start())
    return [flags + body[a + 1 : b] for a, b in pairwise([*cuts, len(body)])]


def _compile(pattern: bytes) -> Any:
    """Compile a pattern; raises ValueError that says what is wrong, or not supported by RE2."""
    import re2  # a library that hosts without expressions do not need

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # a byte is a letter
    options.never_nl = options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(_reason(pattern, reason)) from None


def _reason(pattern: bytes, reason: bytes) -> str:
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return str(error)  # with the position
    text = reason.decode("utf-8", "replace")
    return f"{text}; RE2 has no lookarounds, backreferences or possessive quantifiers"
