"""Finds the lines of a run of bytes in which a regular expression is found, each line by itself, without its newline.

Lets the engine of regular expressions walk over the whole run where that comes to the same as line by line.
"""

import re

__all__ = ["Expression", "confined"]

_TOKEN = re.compile(
    rb"""
      [^][\\(){}?*+|^$.\n]                          # a plain character
    | \\[dwSbt] | \\[^A-Za-z0-9\n]                  # what takes no newline, an escaped sign
    | [.|^$)] | \((?:\?(?::|<?[=!]))?(?!\?) | [?*+]{1,2} | \{\d*,?\d*\}
    | \\(?P<wide> [sDW])                            # what takes a newline, too
    | \[(?P<not> \^)? (?P<of> (?: \\[dwt] | \\[^A-Za-z0-9\n] | [a-z]-[a-z] | [A-Z]-[A-Z] | \d-\d
      | [^][\\^\n-] )+ ) \]
    """,
    re.VERBOSE,
)
_FLAGS = re.compile(rb"\(\?i\)")
_WIDE = {b"s": rb"[^\S\n]", b"D": rb"[^\d\n]", b"W": rb"[^\w\n]"}


class Expression:
    """A regular expression over bytes; what it costs, catastrophic backtracking included, is its author's doing."""

    def __init__(self, text: str) -> None:
        """Compile it, as UTF-8; raises ValueError that names it."""
        pattern = text.encode("utf-8", "surrogateescape")
        try:
            self._search = re.compile(pattern).search
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{text!r} is not a regular expression: {error}") from None
        self._confined = confined(pattern)

    def lines(self, run: bytes) -> list[tuple[int, int]]:
        """Return the half-open ranges of the lines it is found in, in order, each with its newline if it has one."""
        end = len(run) - run.endswith(b"\n")
        return self._by_line(run, end) if self._confined is None else self._at_once(run, end)

    def _at_once(self, run: bytes, end: int) -> list[tuple[int, int]]:
        lines: list[tuple[int, int]] = []
        at = 0
        search = self._search if self._confined is None else self._confined.search
        while at <= end and (found := search(run, at, end)):
            begin = run.rfind(b"\n", at, found.start()) + 1 or at
            at = _behind_line(run, found.start(), end)
            lines.append((begin, at))
        return lines

    def _by_line(self, run: bytes, end: int) -> list[tuple[int, int]]:
        lines: list[tuple[int, int]] = []
        at = 0
        for line in run[:end].split(b"\n"):
            behind = at + len(line) + 1
            if self._search(line):
                lines.append((at, behind))
            at = behind
        return lines


def confined(pattern: bytes) -> re.Pattern[bytes] | None:
    """Return an expression that is found in a run of lines where `pattern` is found in one of them by itself.

    It takes no newline. None where that cannot be told of the pattern, which may be a good one all the same.
    """
    flags = _FLAGS.match(pattern)
    at = flags.end() if flags else 0
    parts = [pattern[:at]]
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            return None
        parts.append(_translated(token))
        at = token.end()
    return re.compile(b"".join(parts), re.MULTILINE)


def _translated(token: re.Match[bytes]) -> bytes:
    if wide := token["wide"]:
        return _WIDE[wide]
    return rb"[^\n" + token["of"] + b"]" if token["not"] else token.group()


def _behind_line(run: bytes, at: int, end: int) -> int:
    newline = run.find(b"\n", at, end)
    return (newline if newline >= 0 else end) + 1
