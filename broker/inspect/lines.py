r"""Lines of many sources as one run of text: each behind the name of its host, none of them torn. Decides only.

What goes to a terminal is made safe: a line may hold codes that move the cursor, set its title, or type for its user.
"""

import re

__all__ = ["LineOutput", "last_lines", "safe"]

# what a terminal acts on, and marks that write a line backwards; a lone surrogate can be printed by nobody
_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


class LineOutput:
    """Lines one behind the other, as they come."""

    def __init__(self, *, prefixed: bool, for_terminal: bool) -> None:
        """Put `host: ` in front of each line if `prefixed`; hide codes from a terminal."""
        self._prefixed = prefixed
        self._for_terminal = for_terminal
        self._torn: tuple[str, str] | None = None  # whose line has come in part only

    def add(self, host: str, file: str, lines: bytes) -> bytes:
        """Return what a section adds: its bytes as they are, but for prefixes, and for a terminal.

        A line of more bytes than a message takes comes in pieces; whatever comes between two of them is on a line of
        its own.
        """
        if not lines:
            return b""
        before, self._torn = self._torn, None if lines.endswith(b"\n") else (host, file)
        if self._for_terminal:
            lines = safe(lines)
        goes_on = before == (host, file)
        if self._prefixed:
            # a host is what its subject says, which may be none that we would give
            prefix = f"{host}: ".encode("utf-8", "surrogateescape")
            lines = _prefixed(safe(prefix) if self._for_terminal else prefix, lines, goes_on)
        return lines if before is None or goes_on else b"\n" + lines


def _prefixed(prefix: bytes, lines: bytes, goes_on: bool) -> bytes:
    body, end = (lines[:-1], b"\n") if lines.endswith(b"\n") else (lines, b"")
    return (b"" if goes_on else prefix) + body.replace(b"\n", b"\n" + prefix) + end


def safe(lines: bytes) -> bytes:
    r"""Return lines with everything that a terminal might act on as an escape such as `\x1b`; tabs and newlines stay."""
    text = lines.decode("utf-8", "backslashreplace")
    return _ACTIVE.sub(lambda found: ascii(found[0])[1:-1], text).encode()


def last_lines(lines: bytes, most: int) -> bytes:
    """Return the last `most` lines, or all where they are fewer; a last one without a newline counts."""
    if most <= 0:
        return b""
    at = len(lines) - lines.endswith(b"\n")
    for _ in range(most):
        at = lines.rfind(b"\n", 0, at)
        if at < 0:
            return lines
    return lines[at + 1 :]
