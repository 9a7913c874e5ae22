"""Leaves out lines, and lets the blocks that are left cover them: positions move, and whoever receives sees no gap.

Reads and ships nothing; used by one thread at a time.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from shipper.expression import Expression
from shipper.positions import Cursor, after
from shipper.tail.reader import Block

__all__ = ["LineFilter", "Rules"]


@dataclass(frozen=True, slots=True)
class Rules:
    """Which lines are shipped: those that one of `include` is found in (all, when there is none) and none of `exclude`."""

    include: tuple[Expression, ...] = ()
    exclude: tuple[Expression, ...] = ()

    def pick(self, run: bytes) -> bytes:
        """Return what is left of a run of lines."""
        if self.include and run:
            found = {line for expression in self.include for line in expression.lines(run)}
            run = b"".join([run[begin:end] for begin, end in sorted(found)])
        for expression in self.exclude:
            run = _without(run, expression.lines(run)) if run else run
        return run


@dataclass(frozen=True, slots=True)
class _Trail:
    """What of a file was passed over since its last block that was shipped, if anything: from `covered` on.

    `keeps` is the decision on a line that comes in pieces, made by its first; `cursor` stands behind the last whole line
    that was passed over.
    """

    covered: int | None = None
    keeps: bool = True
    cursor: Cursor | None = None


class LineFilter:
    """Passes blocks on with the lines that the rules leave; remembers by file what has been passed over."""

    def __init__(self, rules: Rules, known: Iterable[Cursor]) -> None:
        """Begin at the cursors that are known: what they have passed over stays so, whatever the rules are now."""
        self._rules = rules
        self._trails = {
            cursor.file: _Trail(cursor.covered, cursor=cursor)
            for cursor in known
            if cursor.covered is not None
        }

    def change(self, rules: Rules) -> None:
        """Pass on by other rules from now on; what has been passed over stays so."""
        self._rules = rules

    @property
    def is_idle(self) -> bool:
        """Whether every block would be passed on as it is."""
        return not (self._rules.include or self._rules.exclude or self._trails)

    def sift(self, blocks: Sequence[Block]) -> list[Block]:
        """Return what is left of blocks in the order in which they were read; none when no line is left."""
        if self.is_idle:
            return list(blocks)
        return [left for block in blocks if (left := self._sift(block)) is not None]

    def passed(self) -> list[Cursor]:
        """Return the cursors behind what has been passed over and is covered by no block yet."""
        return [
            replace(trail.cursor, covered=trail.covered)
            for trail in self._trails.values()
            if trail.cursor is not None
        ]

    def keep(self, files: Collection[str]) -> None:
        """Forget all files but these, by id."""
        self._trails = {file: trail for file, trail in self._trails.items() if file in files}

    def _sift(self, block: Block) -> Block | None:
        span = block.section.span
        trail = self._trails.pop(span.file, _Trail())
        lines = self._pick(block, trail.keeps)
        is_whole = block.lines.endswith(b"\n")
        if lines:
            return _covering(block, lines, trail.covered)
        self._trails[span.file] = _Trail(
            span.start if trail.covered is None else trail.covered,
            keeps=is_whole,
            cursor=after(block.section, block.read_at) if is_whole else trail.cursor,
        )
        return None

    def _pick(self, block: Block, keeps: bool) -> bytes:
        if not block.continues:
            return self._rules.pick(block.lines)
        end = block.lines.find(b"\n") + 1 or len(block.lines)
        return (block.lines[:end] if keeps else b"") + self._rules.pick(block.lines[end:])


def _covering(block: Block, lines: bytes, covered: int | None) -> Block:
    if covered is None and len(lines) == len(block.lines):
        return block
    section, span = block.section, block.section.span
    section = replace(
        section,
        span=replace(span, start=span.start if covered is None else covered),
        size=len(lines),
        lines=lines.count(b"\n"),
        filtered=True,
    )
    return replace(block, section=section, lines=lines)


def _without(run: bytes, lines: Sequence[tuple[int, int]]) -> bytes:
    if not lines:
        return run
    starts = [0, *(end for _, end in lines)]
    ends = [*(begin for begin, _ in lines), len(run)]
    return b"".join([run[start:end] for start, end in zip(starts, ends, strict=True)])
