"""Leaves out lines. The next block of the file covers them with its span, or an empty one does, so that a receiver sees no gap.

Reads and ships nothing; used by one thread at a time.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

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


class LineFilter:
    """Passes blocks on with the lines that the rules leave; the next block of a file covers what was left out before it."""

    def __init__(self, rules: Rules) -> None:
        """Have left out nothing yet."""
        self._rules = rules
        self._left_out: dict[str, tuple[Block, bool]] = {}  # and whether whole lines were

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

    @property
    def has_left_out(self) -> bool:
        """Whether whole lines were left out that no block covers yet."""
        return any(is_whole for _, is_whole in self._left_out.values())

    def left_out(self) -> list[Block]:
        """Return empty blocks that cover the whole lines that were left out and are not covered yet."""
        whole = [file for file, (_, is_whole) in self._left_out.items() if is_whole]
        return [self._left_out.pop(file)[0] for file in whole]

    def _filter(self, block: Block) -> Block | None:
        section, span = block.section, block.section.span
        before, _ = self._left_out.pop(span.file, (None, False))
        start = span.start if before is None else before.section.span.start
        # the first piece of a line decides on all of them
        pieces = block.lines.find(b"\n") + 1 or len(block.lines) if block.continues else 0
        lines = block.lines[:pieces] if before is None else b""
        lines += self._rules.apply(block.lines[pieces:])
        if start == span.start and len(lines) == len(block.lines):
            return block
        covering, count = replace(span, start=start), lines.count(b"\n")
        section = replace(section, span=covering, size=len(lines), lines=count, filtered=True)
        left = replace(block, section=section, lines=lines)
        if lines:
            return left
        self._left_out[span.file] = left, block.lines.endswith(b"\n")
        return None
