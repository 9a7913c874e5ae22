"""Joins lines of several source files in one output, with a newline after an unfinished line.

A shipper adds no byte: the last line of a file may have no newline, and a line that is too long for
a message comes in pieces. In UTF-16 a newline is two bytes, so a section ends inside a newline:
shippers cut after the byte 0x0a, and do not know the encoding.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

_NEWLINE = b"\n"
_UTF16_LE, _UTF16_BE = b"\n\0", b"\0\n"
_REST_OF_NEWLINE = {b"\0", b"\0\0\0"}  # after 0x0a, in UTF-16LE and in UTF-32LE
_SAMPLE = 64  # bytes at the end of a line that show its encoding


class OpenLine(NamedTuple):
    """An unfinished line: its host and file id, and the newline that ends it in its encoding.

    The newline is empty if only the rest of one (`_REST_OF_NEWLINE`) follows the last line.
    """

    source: tuple[str, str]
    newline: bytes = _NEWLINE

    def as_text(self) -> str:
        """Return the newline in hex and the file id, for a store that has the host."""
        return f"{self.newline.hex()}:{self.source[1]}"

    @classmethod
    def parse(cls, host: str, text: str) -> "OpenLine":
        """Read the text of `as_text`."""
        newline, _, file = text.partition(":")
        return cls((host, file), bytes.fromhex(newline))


@dataclass(slots=True)
class Endings:
    """The unfinished line of each output; an output is a file, by its name.

    `open` has None for an output without one. `open_before(output)` is called for an output that
    is not in `open` yet.
    """

    open: dict[str, OpenLine | None] = field(default_factory=dict)
    open_before: Callable[[str], OpenLine | None] = lambda _: None

    def join(
        self, output: str, source: tuple[str, str], lines: bytes, *, end: int, is_adjacent: bool
    ) -> bytes:
        """Return the bytes to append to an output: `lines`, after a newline if one is missing.

        `end` is the end of `lines` in the source file; `is_adjacent` says that the
        bytes before `lines` were received.
        """
        before = self.open[output] if output in self.open else self.open_before(output)
        goes_on = before is not None and is_adjacent and before.source == source
        self.open[output] = None
        if not lines.endswith(_NEWLINE):
            self.open[output] = OpenLine(source, _newline_after(lines, end, goes_on=goes_on))
        return lines if before is None or goes_on else _end_of(before, lines) + lines

    def as_texts(self) -> Iterable[tuple[str, str | None]]:
        """Yield each output and its unfinished line for a store, None for no such line."""
        return ((output, line.as_text() if line else None) for output, line in self.open.items())


def _newline_after(lines: bytes, end: int, *, goes_on: bool) -> bytes:
    """Return the newline that ends the last line; UTF-16 characters begin at even positions."""
    last_line = lines[lines.rfind(_NEWLINE) + 1 :]
    is_whole = not goes_on or len(last_line) < len(lines)
    if is_whole and last_line in _REST_OF_NEWLINE and end % (len(last_line) + 1) == 0:
        return b""
    if end % 2:
        return _NEWLINE
    high, low = lines[: -_SAMPLE - 1 : -2], lines[-2 : -_SAMPLE - 1 : -2]  # of UTF-16LE
    if high.count(0) * 2 >= len(high) > 0 and not low.count(0):
        return _UTF16_LE
    return _UTF16_BE if low.count(0) * 2 >= len(low) > 0 and not high.count(0) else _NEWLINE


def _end_of(line: OpenLine, following: bytes) -> bytes:
    """Return the newline before lines of another file, which may have another encoding."""
    is_wide = following[:2] in {b"\xff\xfe", b"\xfe\xff"} or 0 in following[:2]
    return line.newline if is_wide else _NEWLINE
