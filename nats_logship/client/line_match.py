"""Compares lines with an expression as tables do: as characters, where bytes would differ.

Most expressions find the same lines either way, and bytes are faster. The others are searched by
RE2 in UTF-8, in blocks that are not ASCII. Bytes that are not UTF-8 are U+FFFD, as in tables.
"""

import re
from functools import lru_cache
from itertools import accumulate
from typing import Any

from nats_logship.client.found_lines import count_lines
from nats_logship.wire.expressions import bounded_expression, matching_runs

Range = tuple[int, int]

_IS_LITERAL = re.compile(r"[^][(){}?*+.\\\ufffd\ud800-\udfff]*+")  # invalid bytes are U+FFFD
_IS_PLAIN = re.compile(  # of ASCII alone: what matches begins and ends between characters
    r"(?:[^][.\\(]|\((?!\?)|\(\?:|\.[*+]|\\(?:[dwsbAzZ]|[^\w\s])|\[(?!\^)[^][\\^]+\])*+"
)
_MOST_PROGRAM = 20_000  # instructions: a character is more of them than a byte
_RUN = rb"(?m)(?:^.*(?:%b).*(?:$\C|\z))+"


class LineMatch:
    """Finds the lines that an expression of RE2 matches."""

    __slots__ = ("_expression", "_text")

    def __init__(self, text: str) -> None:
        """Check the expression; raises ValueError if it is bad, or costly."""
        self._text, self._expression = text, bounded_expression(text)
        if not _is_plain(text):
            _compile(text)

    def find(self, lines: bytes | bytearray, start: int, end: int) -> list[Range]:
        """Return the half-open ranges of the lines in `[start, end)` that match."""
        if _is_plain(self._text):
            return matching_runs((self._expression,), lines, start, end)
        with memoryview(lines) as view, view[start:end] as block:
            try:
                is_ascii = str(block, "utf-8").isascii()
            except UnicodeDecodeError:
                return _find_in_other(self._text, bytes(block), start)
        if is_ascii and self._text.isascii():
            return matching_runs((self._expression,), lines, start, end)
        return _find_runs(self._text, lines, start, end)


@lru_cache(8)
def _is_plain(match: str) -> bool:
    """Whether an expression finds the same in bytes as in characters, in any line."""
    if not match.isascii():
        return _IS_LITERAL.fullmatch(match) is not None
    # two `.+` in a row match one character of two bytes
    is_once = ".+" not in match or (match.count(".+") == 1 and "(" not in match)
    return is_once and _IS_PLAIN.fullmatch(match) is not None


def _find_runs(match: str, lines: bytes | bytearray, start: int, end: int) -> list[Range]:
    """Return the half-open ranges of lines in a row that match, of lines in UTF-8."""
    one, run = _compile(match)
    if (hit := one.search(lines, start, end)) is None:
        return []
    begin = max(start, lines.rfind(b"\n", start, hit.start()) + 1)
    return [some.span() for some in run.finditer(lines, begin, end) if some.end() > some.start()]


def _find_in_other(match: str, lines: bytes, start: int) -> list[Range]:
    """Return the same of lines that are not all UTF-8 and begin at `start`."""
    text = lines.decode("utf-8", "replace").encode()
    found, number, at = list[Range](), 0, 0
    if runs := _find_runs(match, text, 0, len(text)):
        begins = [*accumulate((len(one) + 1 for one in lines.split(b"\n")), initial=start)]
    for first, last in runs:
        number += text.count(b"\n", at, first)
        begin, count = begins[number], count_lines(text[first:last])
        found.append((begin, min(begins[number + count], start + len(lines))))
        number, at = number + text.count(b"\n", first, last), last
    return found


@lru_cache(8)
def _compile(match: str) -> tuple[Any, Any]:
    """Return what finds an expression in text of UTF-8, and what finds runs of its lines.

    Raises ValueError if the expression is bad, or costly.
    """
    import re2

    text = match.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    pattern = bounded_expression(text)
    options = re2.Options()
    options.never_nl = options.never_capture = True
    options.log_errors = False
    try:
        found = re2.compile(b"(?m)" + pattern, options), re2.compile(_RUN % pattern, options)
    except re2.error as error:
        raise ValueError(f"{text!r}: {error}") from None
    if (size := int(found[1].programsize)) > _MOST_PROGRAM:
        raise ValueError(
            f"{text!r} is too large ({size} instructions of at most {_MOST_PROGRAM}): use smaller "
            "numbers of repeats"
        )
    return found
