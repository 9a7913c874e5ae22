"""Leaves out lines by regular expressions.

The next block of the file, or an empty one, covers the lines that were left out with its span, so
that a receiver finds no gap. Reads and ships nothing; used by one thread at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shipper.expressions import Expression, expression, matching_runs
from shipper.sources.block import Block


@dataclass(frozen=True, slots=True)
class Rules:
    """Which lines are shipped: those that match one of `include`, if any, and none of `exclude`."""

    include: tuple[Expression, ...] = ()
    exclude: tuple[Expression, ...] = ()

    @classmethod
    def of(cls, include: Sequence[str], exclude: Sequence[str]) -> "Rules":
        """Return the rules of these expressions; raises ValueError for one that RE2 refuses."""
        return cls(tuple(map(expression, include)), tuple(map(expression, exclude)))

    def apply(self, run: bytes) -> bytes:
        """Return the lines that are shipped; `run` are whole lines, or a piece of one."""
        if self.include:
            run = b"".join(run[start:end] for start, end in matching_runs(self.include, run))
        if not self.exclude:
            return run
        kept, at = [], 0
        for start, end in matching_runs(self.exclude, run):
            kept.append(run[at:start])
            at = end
        return b"".join((*kept, run[at:]))


class LineFilter:
    """Filters blocks by `rules`, which may be changed at any time."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        # empty blocks over lines that are not covered yet, by file; `continues` inside a line
        self._left_out: dict[str, Block] = {}
        # files inside a line that was left out and covered
        self._in_line: set[str] = set()

    @property
    def is_idle(self) -> bool:
        """Whether every block would be returned unchanged."""
        return not (self.rules.include or self.rules.exclude or self._left_out)

    def filter(self, blocks: Sequence[Block]) -> list[Block]:
        """Return the blocks, given in the order of reading, without those that become empty."""
        return [left for block in blocks if (left := self._filter(block)) is not None]

    def cover_left_out(self) -> list[Block]:
        """Return empty blocks over the lines that were left out and are not covered yet.

        The pieces of a line are covered together, unless they are the rest of a file.
        """
        left_out = self._left_out.items()
        whole = [file for file, one in left_out if one.is_rest or not one.continues]
        self._in_line.update(file for file in whole if self._left_out[file].continues)
        return [self._left_out.pop(file) for file in whole]

    def _filter(self, block: Block) -> Block | None:
        section, span = block.section, block.section.span
        before = self._left_out.pop(span.file_id, None)
        if not block.lines:  # a hole covers the lines that were left out before it
            if before is None:
                return block
            self._in_line.update([span.file_id] * before.continues)
            covering = replace(span, start=before.section.span.start)
            return replace(block, section=replace(section, span=covering))
        is_left_out = before is not None or (block.continues and span.file_id in self._in_line)
        self._in_line.discard(span.file_id)
        start = before.section.span.start if before else span.start
        # the first piece of a line decides for all of them
        pieces = block.lines.find(b"\n") + 1 or len(block.lines) if block.continues else 0
        lines = b"" if is_left_out else block.lines[:pieces]
        lines += self.rules.apply(block.lines[pieces:])
        if start == span.start and len(lines) == len(block.lines):
            return block
        covering, count = replace(span, start=start), lines.count(b"\n")
        section = replace(section, span=covering, size=len(lines), lines=count, filtered=True)
        if lines:
            return replace(block, section=section, lines=lines)
        goes_on = not block.lines.endswith(b"\n")
        self._left_out[span.file_id] = replace(block, section=section, lines=b"", continues=goes_on)
        return None
