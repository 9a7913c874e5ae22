"""Leaves out records by regular expressions: lines, or lines that belong together.

The next block of the file, or an empty one, covers the lines that were left out with its span, so
that a receiver finds no gap. Reads and ships nothing; used by one thread at a time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nats_logship.wire.expressions import Expression, expression, matching_runs
from nats_logship.wire.positions import Cursor
from nats_logship.wire.records import Records, parse_records
from shipper.sources.block import Block


@dataclass(frozen=True, slots=True)
class Rules:
    """Which records are shipped: those of which a line matches one of `include`, if any.

    And no line one of `exclude`.
    """

    include: tuple[Expression, ...] = ()
    exclude: tuple[Expression, ...] = ()

    @classmethod
    def of(cls, include: Sequence[str], exclude: Sequence[str]) -> "Rules":
        """Return the rules of these expressions; raises ValueError for one that RE2 refuses."""
        return cls(tuple(map(expression, include)), tuple(map(expression, exclude)))

    def apply(self, run: bytes, records: Records | None = None) -> bytes:
        """Return what is shipped of whole records, or of a piece of one; None: of lines."""
        if self.include:
            found = _find(self.include, run, records)
            run = b"".join(run[start:end] for start, end in found)
        if not self.exclude:
            return run
        kept, at = [], 0
        for start, end in _find(self.exclude, run, records):
            kept.append(run[at:start])
            at = end
        return b"".join((*kept, run[at:]))


def _find(
    expressions: Sequence[Expression], run: bytes, records: Records | None
) -> list[tuple[int, int]]:
    found = matching_runs(expressions, run)
    return found if records is None else records.widen(run, found)


class ExpressionFilter:
    """Filters blocks by `rules`, which may be changed at any time; reading begins at `cursors`."""

    def __init__(self, rules: Rules, cursors: Iterable[Cursor] = ()) -> None:
        self.rules = rules
        # empty blocks over lines that are not covered yet, by file
        self._left_out: dict[str, Block] = {}
        # files inside a record that was left out and covered
        self._in_line = {one.file for one in cursors if one.rest == "left out"}

    @property
    def is_idle(self) -> bool:
        """Whether every block would be returned unchanged."""
        return not (self.rules.include or self.rules.exclude or self._left_out or self._in_line)

    def filter(self, blocks: Sequence[Block]) -> list[Block]:
        """Return the blocks, given in the order of reading, without those that become empty.

        What is missing between two blocks of a file is lost, and stays without a block.
        """
        found: list[Block] = []
        for block in blocks:
            span = block.section.span
            before = self._left_out.get(span.file_id)
            if before is not None and before.section.span.end < span.start:
                found.append(self._cover(span.file_id))
            if (left := self._filter(block)) is not None:
                found.append(left)
        return found

    def cover_left_out(self) -> list[Block]:
        """Return empty blocks over the lines that were left out and are not covered yet.

        The pieces of a record are covered together, unless they are the rest of a file.
        """
        left_out = self._left_out.items()
        whole = [file for file, one in left_out if one.is_rest or not one.goes_on]
        return list(map(self._cover, whole))

    def _cover(self, file: str) -> Block:
        block = self._left_out.pop(file)
        self._in_line.update([file] * block.goes_on)
        return block

    def _filter(self, block: Block) -> Block | None:
        section, span = block.section, block.section.span
        before = self._left_out.pop(span.file_id, None)
        if not block.lines:  # a hole covers the lines that were left out before it
            if before is not None:
                self._in_line.update([span.file_id] * before.goes_on)
                section = replace(section, span=replace(span, start=before.section.span.start))
            if span.file_id in self._in_line:
                section = replace(section, rest="left out")
            return replace(block, section=section)
        is_left_out = before is not None or (block.continues and span.file_id in self._in_line)
        self._in_line.discard(span.file_id)
        start = before.section.span.start if before else span.start
        # the first piece of a record decides for all of them
        records = parse_records(section.records) if section.records else None
        pieces = _end_of_pieces(block, records)
        lines = b"" if is_left_out else block.lines[:pieces]
        lines += self.rules.apply(block.lines[pieces:], records)
        if start == span.start and len(lines) == len(block.lines):
            return block
        covering, count = replace(span, start=start), lines.count(b"\n")
        section = replace(section, span=covering, size=len(lines), lines=count, filtered=True)
        if lines:
            return replace(block, section=section, lines=lines)
        section = replace(section, rest="left out" if block.goes_on else "")
        self._left_out[span.file_id] = replace(block, section=section, lines=b"", continues=False)
        return None


def _end_of_pieces(block: Block, records: Records | None) -> int:
    """Return where a record ends in a block that the block before began."""
    if not block.continues:
        return 0
    if records is not None:
        return records.end_of_rest(block.lines)
    return block.lines.find(b"\n") + 1 or len(block.lines)
