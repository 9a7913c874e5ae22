"""Finds the lines of a run of bytes that match a regular expression, each line by itself, without its newline.

Most expressions search the whole run at once, which takes no step of Python for a line that does not match.
"""

import re

__all__ = ["Expression", "linewise"]

_TOKEN = rb"""(?x:
      [^][\\(){}?*+|^$.\n]                          # a plain character
    | \\[dwSbt] | \\[^A-Za-z0-9\n]                  # what takes no newline, an escaped sign
    | [.|^$)] | \((?:\?(?::|<?[=!]))?(?!\?) | [?*+]{1,2} | \{\d*,?\d*\}
    | \\(?P<wide> [sDW])                            # what takes a newline, too
    | \[(?P<not> \^)? (?P<of> (?: \\[dwt] | \\[^A-Za-z0-9\n] | [a-z]-[a-z] | [A-Z]-[A-Z] | \d-\d
      | [^][\\^\n-] )+ ) \]
    )"""
_TOKENS = re.compile(_TOKEN)
_LINEWISE = re.compile(rb"(?:\(\?i\))?(?:%b)*+" % _TOKEN)
_WIDE = {b"s": rb"[^\S\n]", b"D": rb"[^\d\n]", b"W": rb"[^\w\n]"}


class Expression:
    """A regular expression over bytes; its author answers for what it costs, catastrophic backtracking included."""

    def __init__(self, text: str) -> None:
        """Compile it, as UTF-8; raises ValueError that names it."""
        pattern = text.encode("utf-8", "surrogateescape")
        try:
            self._pattern = re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{text!r} is not a regular expression: {error}") from None
        self._linewise = linewise(pattern)

    def lines(self, run: bytes) -> list[tuple[int, int]]:
        """Return the half-open ranges of the lines that match, in order, each with its newline if it has one."""
        end = len(run) - run.endswith(b"\n")
        if self._linewise is None:
            return self._line_by_line(run[:end])
        lines = []
        at = 0
        while at <= end and (found := self._linewise.search(run, at, end)):
            begin = run.rfind(b"\n", at, found.start()) + 1 or at
            at = (run.find(b"\n", found.start(), end) + 1) or end + 1
            lines.append((begin, at))
        return lines

    def _line_by_line(self, run: bytes) -> list[tuple[int, int]]:
        lines = []
        at = 0
        for line in run.split(b"\n"):
            begin, at = at, at + len(line) + 1
            if self._pattern.search(line):
                lines.append((begin, at))
        return lines


def linewise(pattern: bytes) -> re.Pattern[bytes] | None:
    """Return an expression that matches in a run of lines just where `pattern` matches one of the lines by itself.

    None for a pattern with anything that is not known to keep within a line.
    """
    if not _LINEWISE.fullmatch(pattern):
        return None
    return re.compile(_TOKENS.sub(_within_line, pattern), re.MULTILINE)


def _within_line(token: re.Match[bytes]) -> bytes:
    if wide := token["wide"]:
        return _WIDE[wide]
    return rb"[^\n" + token["of"] + b"]" if token["not"] else token.group()
