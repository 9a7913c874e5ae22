"""Cuts what was read into runs of whole records, and long records into pieces.

A record is a line unless lines are joined. Files and spools of inputs are cut alike.
"""

from collections.abc import Callable
from dataclasses import dataclass

from nats_logship.wire.records import Records
from shipper.sources.files.identity import is_inside_line
from shipper.sources.files.progress import Progress, Reading, Search
from shipper.sources.files.records import end_of_lines, end_of_records

_LEAST_SEARCHED = 64 * 1024  # bytes
Read = Callable[[int, int], bytes]
"""Reads so many bytes at a position."""


@dataclass(frozen=True, slots=True)
class Cutter:
    """Cuts what is at the offset of `progress`: records, or lines if `records` is None.

    A run has `block_size` bytes at most, or one line of `max_line` bytes. A record ends after
    `lines` lines.
    """

    progress: Progress
    records: Records | None
    block_size: int
    max_line: int
    lines: int

    @property
    def longest(self) -> int:
        """How many bytes a record may have that is not cut into pieces."""
        return self.max_line if self.records is None else max(self.block_size, self.max_line)

    def lengths(self, limit: int) -> list[int]:
        """Return how many bytes to read for about `limit` bytes of records: more if not enough."""
        is_joined = self.records is not None and limit > _LEAST_SEARCHED
        return [*[_LEAST_SEARCHED] * is_joined, limit, self.longest + 1]

    def is_enough(self, data: bytes | bytearray, start: int, end: int, limit: int) -> bool:
        """Whether what was read first, `data[start:end]`, is enough to cut about `limit` bytes."""
        if self.records is None:
            return data.find(b"\n", start, end) >= 0
        until = self._find_end(self.records, data, start, end)
        # if no line begins a record, less is enough
        return start < until and (
            end - start >= limit or until == self._end_by_count(data, start, end)
        )

    def _find_end(self, records: Records, data: bytes | bytearray, start: int, end: int) -> int:
        """Return where the last whole record ends; the start if none does."""
        whole = max(start, data.rfind(b"\n", start, end) + 1)
        until = end_of_records(records, data, start, whole)
        return until if until > start else self._end_by_count(data, start, end)

    def _end_by_count(self, data: bytes | bytearray, start: int, end: int) -> int:
        """Return where the first record has too many lines; the start if nowhere."""
        left = self.lines - self.progress.record_lines * self.progress.in_line
        return end_of_lines(data, start, end, max(1, left))

    def split(self, data: bytes | bytearray, start: int, end: int) -> Reading:
        """Return the whole records in `data[start:end]`, and the unfinished one behind them.

        `data[:start]` are the bytes before the offset. The size of the reading is 0.
        """
        records, goes_on, until = self.records, False, start
        most = max(self.block_size, self.max_line)
        if records is not None:
            until = self._find_end(records, data, start, min(end, start + most))
            goes_on = until == start and end - start > most
        if records is None or goes_on:
            until = end_of_run(data, start, end, most, self.max_line)
        with memoryview(data) as view:
            run, rest, tail = bytes(view[start:until]), bytes(view[until:end]), bytes(view[:start])
        # a rest of more than an unfinished record is read again
        is_one = b"\n" not in rest
        if records is not None:
            is_one = end - start <= most and rest.count(b"\n") < self.lines
        rest = rest if is_one and len(rest) <= self.longest else b""
        return Reading(
            is_intact=True,
            size=0,
            modified=0,
            run=run,
            rest=rest,
            tail=tail,
            unfinished=len(rest),
            records=str(records or ""),
            holds_lines=b"\n" in rest,
            continues=is_inside_line(tail) or self._continues(data, start),
            goes_on=goes_on or is_inside_line(run),
        )

    def _continues(self, data: bytes | bytearray, start: int) -> bool:
        """Whether the data begins inside a record of which a piece was read."""
        if self.records is None or not self.progress.in_line:
            return False
        end = data.find(b"\n", start) + 1
        return not (end and self.records.begins(data, start, end))

    def is_begun(self, reading: Reading) -> bool:
        """Whether a piece of the first record of the reading was read before.

        A further line of it that is over-long counts as another record, since it may have no end.
        """
        if not reading.records:
            return self.progress.in_line
        is_whole = reading.run.endswith(b"\n")
        return is_inside_line(reading.tail) or (reading.continues and is_whole)

    def search_end(self, read: Read, reading: Reading, blocks: int) -> tuple[bool, int, Search]:
        """Return whether the over-long record of a reading has an end, and how far that is known.

        Searches behind its run, or goes on where an earlier search of this record stopped, in at
        most so many blocks.
        """
        run, records, progress = reading.run, self.records, self.progress
        at, lines = progress.searched or Search(progress.offset + len(run), run.count(b"\n"))
        for _ in range(blocks):
            data = read(self.block_size, at)
            whole = data.rfind(b"\n") + 1
            lines += data.count(b"\n") if records else 0
            has_end = bool(whole) and (
                records is None
                or lines >= self.lines
                or bool(records.find_boundaries(data, 0, whole))
            )
            reached, is_last = at + len(data), len(data) < self.block_size
            # a search for an end goes on at the start of a line
            at = at + whole if records and (whole or is_last) else reached
            if has_end or is_last:
                break
        return has_end, reached, Search(at, lines)


def end_of_run(data: bytes | bytearray, start: int, end: int, most: int, max_line: int) -> int:
    """Return where the last whole line in `data[start:end]` ends, in its first `most` bytes.

    Returns `start` if no line ends there; if the line is longer than `max_line` bytes, the end of a
    piece of that size.
    """
    if until := data.rfind(b"\n", start, min(end, start + most)) + 1:
        return until
    return start + max_line if end - start > max_line else start
