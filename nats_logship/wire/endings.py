"""Where lines of several source files come one after the other: no line is glued to another file's unfinished line.

A shipper adds no byte. The last line of a file may have no newline, and a line that is too long for a message comes in
pieces. Whoever puts the lines of several files together ends such a line when bytes of another file follow it. A file
in UTF-16 stays whole: its newline has two bytes, and no shipper knows that it is in UTF-16.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

_NEWLINE = b"\n"
_UTF16_LE, _UTF16_BE = b"\n\0", b"\0\n"
_REST_OF_NEWLINE = {b"\0", b"\0\0\0"}
"""What follows the byte 0x0a in a newline of UTF-16LE, and of UTF-32LE."""
_SHOWN = 64  # bytes before the end of a line that show its encoding


class OpenLine(NamedTuple):
    """An unfinished line: the host and the id of the source file that it belongs to, and the newline that ends it.

    The newline is that of the encoding that the bytes show, and empty where only the rest of a newline stands there.
    """

    source: tuple[str, str]
    newline: bytes = _NEWLINE

    def as_text(self) -> str:
        """Return the newline, in hex, and the file id: what a store remembers beside the host."""
        return f"{self.newline.hex()}:{self.source[1]}"

    @classmethod
    def parse(cls, host: str, text: str) -> "OpenLine":
        """Read what `as_text` made."""
        newline, _, file = text.partition(":")
        return cls((host, file), bytes.fromhex(newline))


@dataclass(slots=True)
class Endings:
    """Which lines are unfinished, by the name of what was written to: a file, or an output.

    `open` has None for an output whose last line is finished; `open_before` is asked about an
    output that nothing was joined to yet.
    """

    open: dict[str, OpenLine | None] = field(default_factory=dict)
    open_before: Callable[[str], OpenLine | None] = lambda _: None

    def join(
        self, output: str, source: tuple[str, str], lines: bytes, *, end: int, follows: bool
    ) -> bytes:
        """Return the bytes to append to an output for `lines`: behind a newline if they belong to another line.

        `end` is the position in the source file behind `lines`; `follows` says that the lines of the same source before
        were received.
        """
        before = self.open[output] if output in self.open else self.open_before(output)
        goes_on = before is not None and follows and before.source == source
        self.open[output] = None
        if not lines.endswith(_NEWLINE):
            self.open[output] = OpenLine(source, _newline_behind(lines, end, goes_on=goes_on))
        return lines if before is None or goes_on else _end_of(before, lines) + lines

    def as_texts(self) -> Iterable[tuple[str, str | None]]:
        """Yield each output with its unfinished line as a store remembers it, None for no such line."""
        return ((output, line.as_text() if line else None) for output, line in self.open.items())


def _newline_behind(lines: bytes, end: int, *, goes_on: bool) -> bytes:
    """Return the newline that ends the last line. Code units of UTF-16 begin at even positions of the source file."""
    begun = lines[lines.rfind(_NEWLINE) + 1 :]
    is_whole = not goes_on or len(begun) < len(lines)
    if is_whole and begun in _REST_OF_NEWLINE and end % (len(begun) + 1) == 0:
        return b""
    if end % 2:
        return _NEWLINE
    last_bytes, first_bytes = lines[: -_SHOWN - 1 : -2], lines[-2 : -_SHOWN - 1 : -2]
    last, first = last_bytes.count(0), first_bytes.count(0)
    if last and not first and 2 * last >= len(last_bytes):
        return _UTF16_LE
    return _UTF16_BE if first and not last and 2 * first >= len(first_bytes) else _NEWLINE


def _end_of(line: OpenLine, following: bytes) -> bytes:
    """Return what ends a line before the lines of another file, which may be in another encoding."""
    is_wide = following[:2] in {b"\xff\xfe", b"\xfe\xff"} or 0 in following[:2]
    return line.newline if is_wide else _NEWLINE
