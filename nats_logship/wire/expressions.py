"""Users' regular expressions over the bytes of lines, searched by RE2.

RE2 needs time in proportion to the bytes, whatever the expression, and releases the interpreter's
lock. An expression sees one line at a time, without its newline. RE2 searches whole blocks, so
Python does no work for each line, only for each run of lines that match.
"""

import re
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NewType

Expression = NewType("Expression", bytes)
"""An expression that `expression` has checked, to be put into a larger one."""

_TOKEN = re.compile(
    rb"\\(?P<letter>.)|\[\^?\]?(?:\\.|[^]\\])*\]|\{,(?P<most>[0-9]+)\}|\(\?[a-z]*-[a-z]*m",
    re.DOTALL | re.IGNORECASE,
)
_ANCHORS = {b"\\A": b"^", b"\\Z": b"$", b"\\z": b"$"}
# A line's newline is any byte (`\C`): `never_nl` keeps classes and `.` from matching it
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


def matching_runs(
    expressions: Sequence[Expression],
    lines: bytes | bytearray,
    start: int = 0,
    end: int | None = None,
) -> list[tuple[int, int]]:
    """Return the half-open ranges of whole lines in a row that one of the expressions matches.

    Searches the lines in `[start, end)`; the last one may lack its newline.
    """
    pattern = _any_of(tuple(expressions))
    return [found.span() for found in pattern.finditer(lines, start, end)]


def measure(one: Expression) -> int:
    """Return how many instructions the program of an expression has, which bounds its time."""
    return int(_any_of((one,)).programsize)


def _in_a_block(token: re.Match[bytes]) -> bytes:
    """Translate a token of an expression over one line into one over many lines."""
    if token["most"]:
        return b"{0,%b}" % token["most"]
    if token["letter"] in (b"C", b"Q") or token[0].startswith(b"(?"):
        raise ValueError(f"{token[0].decode()} is not supported")
    return _ANCHORS.get(token[0], token[0])


@lru_cache(maxsize=32)
def _any_of(expressions: tuple[Expression, ...]) -> Any:
    return _compile(_RUN % b"|".join(b"(?:%b)" % one for one in expressions))


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
