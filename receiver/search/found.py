"""Lines that were found, and how they are shown: as text or JSON, safely on a terminal."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nats_logship.app.command_line import write_bytes
from nats_logship.app.progress import TERMINAL
from nats_logship.app.text import escape, prefix_lines
from nats_logship.app.timestamps import format_time
from nats_logship.app.units import format_size
from nats_logship.client.found_lines import FoundLines
from nats_logship.history import Line


class Found(NamedTuple):
    """Lines in a row of a host and file; `time` in nanoseconds, None where it is not known.

    `stream`, `sequence` and `pos` are the key of the first line; empty for received files. If it
    `begins`, lines were left out before it. `records` are the lines as they belong together; None:
    each is alone. If it `goes_on`, the rest of its last line or record is not known.
    """

    host: str
    file: str
    lines: bytes
    time: int | None = None
    stream: str = ""
    sequence: int = 0
    pos: int = 0
    is_context: bool = False
    begins: bool = False
    records: tuple[bytes, ...] | None = None
    goes_on: bool = False

    @classmethod
    def from_table(cls, record: Sequence[Line]) -> "Found":
        """Return the lines of a record of a table, or a line alone."""
        in_order = sorted(record, key=lambda one: one.order)
        first, lines = in_order[0], b"".join(one.line + b"\n" for one in in_order)
        return cls(
            host=first.host,
            file=first.file,
            lines=lines,
            time=first.time,
            stream=first.stream,
            sequence=first.sequence,
            pos=first.pos,
            records=(lines,) if len(record) > 1 else None,
            goes_on=in_order[-1].is_piece,
        )

    @classmethod
    def from_stream(cls, lines: FoundLines, stream: str) -> "Found":
        """Return lines of a stream, which is named with its creation."""
        return cls(
            host=lines.host,
            file=lines.file,
            lines=lines.lines,
            time=lines.stored_at,
            stream=stream,
            sequence=lines.sequence,
            pos=lines.number,
            records=lines.records,
            goes_on=lines.goes_on,
        )

    def as_line(self) -> Line:
        """Return the place of the first line as tables have it."""
        place = self.time or 0, self.host, self.file, self.stream, self.sequence, self.pos
        return Line(*place, self.lines.partition(b"\n")[0])

    def split_up(self) -> Iterator["Found"]:
        """Yield each record or line by itself."""
        parts = self.records or (line + b"\n" for line in self.split())
        pos, begins = self.pos, self.begins
        for lines in parts:
            records = (lines,) if self.records else None
            yield self._replace(lines=lines, pos=pos, begins=begins, records=records)
            pos, begins = pos + lines.count(b"\n"), False

    def split(self) -> list[bytes]:
        """Return the lines without their newlines."""
        return self.lines.removesuffix(b"\n").split(b"\n")


@dataclass(slots=True)
class Printer:
    """Writes lines to standard output: with the host before each unless there is only one."""

    is_prefixed: bool
    as_json: bool
    has_written: bool = False
    _is_terminal: bool = field(default_factory=sys.stdout.isatty)
    _has_begun: bool = False

    def write(self, some: Iterable[Found]) -> None:
        """Write lines; raises as `write_bytes`."""
        data = b"".join(map(self._format_json if self.as_json else self._format, some))
        self.has_written |= bool(data)
        write_bytes(data)

    def _format(self, found: Found) -> bytes:
        lines = found.lines if found.lines.endswith(b"\n") else found.lines + b"\n"
        lines = prefix_lines(found.host, lines) if self.is_prefixed else lines
        lines = escape(lines) if self._is_terminal else lines
        is_apart, self._has_begun = found.begins and self._has_begun, True
        return b"--\n" + lines if is_apart else lines

    def _format_json(self, found: Found) -> bytes:
        known: dict[str, object] = {"host": found.host}
        if found.time is not None:
            known["time"] = format_time(found.time)
        if found.file:
            known["file"] = found.file
        if found.stream:
            known |= {"stream": found.stream, "sequence": found.sequence}
        if found.is_context:
            known["context"] = True
        texts, lines = list[str](), found.split()
        for number, line in enumerate(lines, 1):
            at = {"pos": found.pos + number - 1} if found.stream else {}
            text = {"line": line.decode("utf-8", "surrogateescape")}
            piece = {"piece": True} if found.goes_on and number == len(lines) else {}
            texts.append(f"{json.dumps(known | at | text | piece)}\n")
        return "".join(texts).encode()


@dataclass(slots=True)
class SearchStatus:
    """Shows on a terminal how far the search is, in one line of standard error."""

    size: int = 0
    read: int = 0

    def show(self, read: int, until: int | None) -> None:
        """Show how many bytes were read, and up to which time (nanoseconds)."""
        self.read = read
        at = f", up to {format_time(until, 'seconds')}" if until else ""
        text = f"searched {format_size(read)} of {format_size(max(self.size, read))}{at}"
        TERMINAL.show(text)

    def clear(self) -> None:
        """Remove the line."""
        TERMINAL.show("")
