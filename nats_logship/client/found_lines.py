"""Lines that were found in messages of a stream, and records whose lines are in several of them."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.message import MAX_LINES_BYTES, Section
from nats_logship.wire.records import Records, parse_records

_PIECE_COST = 64 * 1024  # bytes that a held piece counts for beside its own


class FoundLines(NamedTuple):
    """Lines in a row from one file of a host; `stored_at` is in nanoseconds since the epoch.

    `number` is that of the first line in its message, from 0; a record that goes on in later
    messages has the place of its first line. `file_id` and `end` are those of the
    section's span; empty and 0 for the lines of another client. `records` are the lines as they
    belong together; None: each is alone. If it `goes_on`, its rest is in a later message.
    """

    host: str
    partition: int
    sequence: int
    stored_at: int
    file: str
    lines: bytes
    number: int = 0
    file_id: str = ""
    end: int = 0
    records: tuple[bytes, ...] | None = None
    goes_on: bool = False

    def split(self) -> list[bytes]:
        """Return the records, each without its last newline; without records the lines."""
        if self.records is not None:
            return [record.removesuffix(b"\n") for record in self.records]
        return self.lines.removesuffix(b"\n").split(b"\n")

    def first(self, most: int) -> Iterator["FoundLines"]:
        """Yield the first records or lines, at most `most`, each by itself."""
        texts, number = self.records, self.number
        if texts is None:
            texts = tuple(self.lines.removesuffix(b"\n").split(b"\n", most)[:most])
        for text in texts[:most] if self.lines else ():
            text = text.removesuffix(b"\n") + b"\n"
            records = None if self.records is None else (text,)
            yield self._replace(lines=text, records=records, number=number)
            number += text.count(b"\n")

    def divide(self, number: int) -> tuple["FoundLines", "FoundLines"]:
        """Return what is before the record or line that has a line, by its number, and the rest."""
        passed, records = number - self.number, self.records
        parts: tuple[tuple[bytes, ...] | None, ...] = (None, None)
        if records is None:
            count = partial(self.lines.count, b"\n", 0)
            cut = bisect_left(range(len(self.lines)), passed, key=count)
        else:
            at = bisect_right([*accumulate(map(count_lines, records))], passed)
            parts, cut = (records[:at], records[at:]), sum(map(len, records[:at]))
        before, rest = self.lines[:cut], self.lines[cut:]
        return (
            self._replace(lines=before, records=parts[0]),
            self._replace(lines=rest, records=parts[1], number=self.number + count_lines(before)),
        )

    def last(self, most: int) -> Iterator["FoundLines"]:
        """Yield the last records or lines, at most `most`, each by itself."""
        if not (self.lines and most):
            return
        if self.records is not None:
            parts = list(self.records[-most:])
        else:
            ended = self.lines.endswith(b"\n")
            found = self.lines.rsplit(b"\n", most + ended)
            parts = found[-most - ended : len(found) - ended]
        sizes = [part.removesuffix(b"\n").count(b"\n") + 1 for part in parts]
        number = self.number + count_lines(self.lines) - sum(sizes)
        for part, size in zip(parts, sizes, strict=True):
            whole = part.removesuffix(b"\n") + b"\n"
            records = None if self.records is None else (whole,)
            yield self._replace(lines=whole, records=records, number=number)
            number += size


class _Piece(NamedTuple):
    found: FoundLines
    section: Section
    cost: int


@dataclass(slots=True)
class OpenRecords:
    """Records and lines that go on in later messages, by the end of a subject and by file id.

    They are held until they are complete, but at most 16 MiB of them: others are found in pieces.
    A record is found as soon as a message completes it. A section that is `alone`, by its begin,
    was found without the beginning of its record, and is not joined to it.
    """

    alone: Mapping[tuple[bytes, str], int] | None = None
    firsts: dict[tuple[bytes, str], tuple[int, int]] = field(default_factory=dict)
    """With `alone`, the sequence and the begin of the first section of each file."""
    _held: dict[tuple[bytes, str], _Piece] = field(default_factory=dict)
    _cost: int = 0

    def need(self, message: RawMessage) -> bool:
        """Whether a message may begin, continue or end such a record."""
        head = message.head
        return b'"kept"' in head or any(subject in head for subject, _ in self._held)

    def has_begun(self, first: int, until: int) -> bool:
        """Whether a record goes on that began in the sequences `[first, until)`."""
        return any(first <= one.found.sequence < until for one in self._held.values())

    def join(self, found: FoundLines, section: Section) -> Iterator[tuple[FoundLines, Section]]:
        """Yield a section's lines, with the beginning of the first record; hold what goes on."""
        lines, records, first = found.lines, records_of(section), 0
        goes_on = section.rest == "kept"
        before, key, start = self._take(found), _key_of(found), section.span.start
        if self.alone is not None:
            self.firsts.setdefault(key, (found.sequence, start))
        if before and (before.found.end != start or (self.alone or {}).get(key) == start):
            yield before.found, before.section
            before = None
        if before:
            first = records.end_of_rest(lines) if records else lines.find(b"\n") + 1 or len(lines)
            record = before.found._replace(lines=before.found.lines + lines[:first], end=found.end)
            if goes_on and first == len(lines):
                yield from self._hold(_Piece(record, section, before.cost + first))
                return
            yield record._replace(goes_on=False), section
        last = _find_last_record(lines, records, first) if goes_on else len(lines)
        number = found.number + count_lines(lines[:first])
        yield found._replace(lines=lines[first:last], number=number), section
        if goes_on:
            number += count_lines(lines[first:last])
            rest = found._replace(lines=lines[last:], number=number, goes_on=True)
            yield from self._hold(_Piece(rest, section, len(rest.lines)))

    def end(self, before: int | None = None) -> Iterator[tuple[FoundLines, Section]]:
        """Yield what is held, if nothing follows: all, or what began before a time."""
        for key, piece in [*self._held.items()]:
            if before is None or piece.found.stored_at < before:
                self._cost -= self._held.pop(key).cost
                yield piece.found, piece.section

    def _take(self, found: FoundLines) -> _Piece | None:
        piece = self._held.pop(_key_of(found), None)
        self._cost -= piece.cost if piece else 0
        return piece

    def _hold(self, piece: _Piece) -> Iterator[tuple[FoundLines, Section]]:
        """Hold a piece, or yield it if there is no space."""
        cost = piece.cost + _PIECE_COST
        if self._cost + cost > MAX_LINES_BYTES:
            yield piece.found, piece.section
            return
        self._cost += cost
        self._held[_key_of(piece.found)] = piece._replace(cost=cost)


def count_lines(lines: bytes) -> int:
    """Return the number of lines; the last one may lack its newline."""
    return lines.count(b"\n") + (bool(lines) and not lines.endswith(b"\n"))


def records_of(section: Section) -> Records | None:
    """Return how a section's lines are joined; None if each is alone."""
    return parse_records(section.records) if section.records else None


def _key_of(found: FoundLines) -> tuple[bytes, str]:
    return f".{found.host}\r\n".encode(), found.file_id


def _find_last_record(lines: bytes, records: Records | None, first: int) -> int:
    """Return where the last record, or line, of `lines[first:]` begins."""
    if records is None:
        return max(first, lines.rfind(b"\n", first, len(lines) - 1) + 1)
    return len(lines) - len(records.split(lines[first:])[-1])
