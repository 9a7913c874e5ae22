"""Records: lines that belong together, such as a stack trace, in the form that messages name them.

An expression says which lines begin a record (`start`), or which end one (`end`). It may come from
a stranger: RE2 searches it, its length and its program are bounded, and `parse_records` returns
None for what cannot be used. RE2 searches whole blocks; Python does no work for each line, only for
each run of lines that match.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import pairwise

from nats_logship.wire.expressions import (
    Expression,
    expression,
    expression_for_all_lines,
    matching_runs,
)

MAX_RECORDS_BYTES = 1024  # of the text of `Records`
PIECE = r"^\S+ std(?:out|err) P "
"""A line of a container whose rest is in the next line; that one begins no record."""

Range = tuple[int, int]


class RecordForm(Enum):
    """What a line that matches does."""

    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class Records:
    """How lines are joined: by lines that match `pattern`."""

    form: RecordForm
    text: str
    pattern: Expression

    @classmethod
    def of(cls, form: RecordForm, text: str) -> "Records":
        """Check an expression; raises ValueError with the reason."""
        if len(f"{form.value}:{text}".encode("utf-8", "surrogateescape")) > MAX_RECORDS_BYTES:
            raise ValueError(f"the expression has more than {MAX_RECORDS_BYTES - 8} bytes")
        found = cls(form, text, expression_for_all_lines(text))
        if matching_runs((found.pattern,), b"\n"):
            raise ValueError(f"{text!r} matches an empty line, and so may match every line")
        return found

    def __str__(self) -> str:
        return f"{self.form.value}:{self.text}"

    def find_boundaries(
        self, lines: bytes | bytearray, start: int = 0, end: int | None = None
    ) -> list[Range]:
        """Return where records begin or end in the whole lines of `[start, end)`.

        In ranges, both ends included: each start of a line in a range is a boundary. `end` counts
        as the start of a line.
        """
        runs = matching_runs((self.pattern,), lines, start, end)
        if self.form is RecordForm.END:
            return _ends_of_lines(lines, runs)
        found = [(a, max(a, lines.rfind(b"\n", a, b - 1) + 1)) for a, b in runs]
        has_pieces = found and lines.find(b" P ", start, end) >= 0
        pieces = matching_runs((_piece(),), lines, start, end) if has_pieces else []
        return list(_leave_out(lines, found, _ends_of_lines(lines, pieces))) if pieces else found

    def begins(self, lines: bytes | bytearray, start: int, end: int) -> bool:
        """Whether the line in `[start, end)` begins a record, by what it holds."""
        return self.form is RecordForm.START and bool(self.find_boundaries(lines, start, end))

    def end_of_rest(self, lines: bytes) -> int:
        """Return where a record ends that began before these lines."""
        is_start = self.form is RecordForm.START
        found = self.find_boundaries(lines, lines.find(b"\n") + 1 if is_start else 0)
        return found[0][0] if found else len(lines)

    def split(self, lines: bytes) -> list[bytes]:
        """Return the records of lines; the first one may be the rest of one that began before."""
        cuts = [0]
        for at, last in self.find_boundaries(lines):
            start = at
            while start <= last:
                cuts.append(start)
                start = lines.find(b"\n", start) + 1 or last + 1
        return [lines[a:b] for a, b in pairwise([*cuts, len(lines)]) if b > a]

    def widen(self, lines: bytes, ranges: Sequence[Range]) -> list[Range]:
        """Return half-open ranges of lines, widened to whole records; records in a row are one."""
        boundaries = self.find_boundaries(lines) if ranges else []
        begins, ends = [a for a, _ in boundaries], [b for _, b in boundaries]
        widened: list[Range] = []
        for start, end in ranges:
            before, behind = bisect_right(begins, start) - 1, bisect_left(ends, end)
            first = min(start, ends[before]) if before >= 0 else 0
            last = max(end, begins[behind]) if behind < len(ends) else len(lines)
            if widened and first <= widened[-1][1]:
                first = widened.pop()[0]
            widened.append((first, last))
        return widened


@lru_cache(maxsize=1000)
def parse_records(text: str) -> Records | None:
    """Return the records that a message names; None if the value is bad, unknown or too large."""
    form, _, pattern = text.partition(":")
    try:
        return Records.of(RecordForm(form), pattern)
    except ValueError:
        return None


@lru_cache(maxsize=1)
def _piece() -> Expression:
    return expression(PIECE)


def _ends_of_lines(lines: bytes | bytearray, runs: Sequence[Range]) -> list[Range]:
    return [(lines.find(b"\n", a, b) + 1 or b, b) for a, b in runs]


def _leave_out(
    lines: bytes | bytearray, ranges: Sequence[Range], left_out: Sequence[Range]
) -> Iterator[Range]:
    """Yield the ranges of starts of lines without those in `left_out`."""
    ends = [b for _, b in left_out]
    for first, last in ranges:
        at = first
        for number in range(bisect_left(ends, first), len(ends)):
            begin, end = left_out[number]
            if begin > last:
                break
            if at < begin:
                yield at, lines.rfind(b"\n", at, begin - 1) + 1 or at
            at = lines.find(b"\n", end) + 1 or last + 1
        if at <= last:
            yield at, last
