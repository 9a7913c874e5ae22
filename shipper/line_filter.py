"""Leaves out lines. The next block that is shipped covers them with its span, so that a receiver sees no gap.

Reads and ships nothing; used by one thread at a time.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from broker.wire.positions import Cursor, after
from shipper.tail.reader import Block

__all__ = ["LineFilter", "Rules"]


@dataclass(frozen=True, slots=True)
class Rules:
    """Which lines are shipped: those in which one of `include` is found (all, when there is none) and none of `exclude`.

    Each line is searched by itself, without its newline.
    """

    include: tuple[re.Pattern[bytes], ...] = ()
    exclude: tuple[re.Pattern[bytes], ...] = ()

    def apply(self, run: bytes) -> bytes:
        """Return what is left of whole lines, or of a piece of one."""
        end = b"\n" if run.endswith(b"\n") else b""
        lines = run.removesuffix(b"\n").split(b"\n")
        if self.include:
            lines = [line for line in lines if any(one.search(line) for one in self.include)]
        for one in self.exclude:
            lines = [line for line in lines if not one.search(line)]
        return b"\n".join(lines) + end if lines else b""


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """What was left out at the end of a file as far as it was read, from byte `start` on.

    `cursor` is behind the last whole line of it; `in_line` says that the pieces of a line follow.
    """

    start: int
    cursor: Cursor | None
    in_line: bool = False


class LineFilter:
    """Passes blocks on with the lines that the rules leave; remembers by file what was left out since the last one."""

    def __init__(self, rules: Rules, known: Iterable[Cursor]) -> None:
        """Begin at the known cursors: what was left out before them stays so, whatever the rules are now."""
        self._rules = rules
        self._left_out = {
            cursor.file: _LeftOut(cursor.covered, cursor)
            for cursor in known
            if cursor.covered is not None
        }

    def change(self, rules: Rules) -> None:
        """Apply other rules from now on."""
        self._rules = rules

    @property
    def is_idle(self) -> bool:
        """Whether every block would be passed on as it is."""
        return not (self._rules.include or self._rules.exclude or self._left_out)

    def filter(self, blocks: Sequence[Block]) -> list[Block]:
        """Return the blocks, in the order in which they were read, without those of which no line is left."""
        return [left for block in blocks if (left := self._filter(block)) is not None]

    def passed(self) -> list[Cursor]:
        """Return the cursors behind lines that were left out and are not covered by a block yet."""
        return [
            replace(left_out.cursor, covered=left_out.start)
            for left_out in self._left_out.values()
            if left_out.cursor is not None
        ]

    def keep(self, files: Collection[str]) -> None:
        """Forget all files but these, by id."""
        self._left_out = {file: one for file, one in self._left_out.items() if file in files}

    def _filter(self, block: Block) -> Block | None:
        section, span = block.section, block.section.span
        before = self._left_out.pop(span.file, None) or _LeftOut(span.start, None)
        # the first piece of a line decides on all of them
        pieces = block.lines.find(b"\n") + 1 or len(block.lines) if block.continues else 0
        lines = b"" if before.in_line else block.lines[:pieces]
        lines += self._rules.apply(block.lines[pieces:])
        if not lines:
            is_whole = block.lines.endswith(b"\n")
            cursor = after(section, block.read_at) if is_whole else before.cursor
            self._left_out[span.file] = _LeftOut(before.start, cursor, not is_whole)
            return None
        if before.start == span.start and len(lines) == len(block.lines):
            return block
        section = replace(
            section,
            span=replace(span, start=before.start),
            size=len(lines),
            lines=lines.count(b"\n"),
            filtered=True,
        )
        return replace(block, section=section, lines=lines)
