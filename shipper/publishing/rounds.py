"""Rounds: what is published at a time, one message of lines of one or more files.

Cuts and joins; never sends. One round is in flight at a time, so it can name the subject's last sequence.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from broker.wire.message import (
    MAX_LINES_BYTES,
    MAX_SPANS_BYTES,
    Origin,
    Section,
    Span,
    encode_origin,
    most_encoded,
)
from shipper.block import Block

__all__ = ["FIRST_SIZE", "NEARBY_SIZE", "Round", "cut", "next_size", "sections_of"]

FIRST_SIZE = 256 * 1024
"""Bytes of lines in the first round, and the least that a slow line brings it down to."""

NEARBY_SIZE = 2 * 1024 * 1024
"""Bytes of lines in a round where the broker is nearby: a larger one takes memory and is no faster."""

_NEAR, _BRISK, _QUICK, _SLOW = 0.06, 0.25, 1.0, 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Round:
    """A message as it is sent, but for the sequence that it expects; it has one section or more."""

    origin: Origin
    payload: bytes

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the message."""
        return encode_origin(self.origin)


def cut(blocks: Sequence[Block], most_bytes: int) -> Iterator[Sequence[Block]]:
    """Yield the blocks of one round after the other, in their order.

    A round has at most `most_bytes` of lines, or a single block that is larger, and headers that the server takes.
    """
    most_bytes = min(most_bytes, MAX_LINES_BYTES)
    start = size = headers = 0
    for place, block in enumerate(blocks):
        size += len(block.lines)
        headers += most_encoded(block.section)
        if place > start and (size > most_bytes or headers > MAX_SPANS_BYTES):
            yield blocks[start:place]
            start, size, headers = place, len(block.lines), most_encoded(block.section)
    if blocks[start:]:
        yield blocks[start:]


def sections_of(blocks: Sequence[Block]) -> tuple[Section, ...]:
    """Return the sections of a message of these blocks: one of those of a file that follow each other."""
    sections: list[Section] = []
    for block in blocks:
        if sections and (joined := _joined(sections[-1], block.section)):
            sections[-1] = joined
        else:
            sections.append(block.section)
    return tuple(sections)


def next_size(size: int, sent: int, took: float, most: int) -> int:
    """Return how many bytes of lines the next round may have after one of at most `size` took `took` seconds to be acknowledged.

    A round of `sent` bytes is sent again whole, so on a slow line it must stay well below the time after which a connection
    is given up; on a quick one it grows up to `most`, twofold or, where that is sure to be quick too, fourfold, and with a
    broker nearby to `NEARBY_SIZE`.
    """
    if took < _NEAR * max(1, sent / NEARBY_SIZE):
        most = min(most, NEARBY_SIZE)
    if took > _SLOW:
        return min(most, max(FIRST_SIZE, size // 2))
    if took < _QUICK:
        size *= 4 if took < _BRISK else 2
    return min(most, size)


def _joined(before: Section, behind: Section) -> Section | None:
    """Return two sections as one where the second goes on where the first ends, None where it does not."""
    first, second = before.span, behind.span
    follows = (before.path, first.file, first.end) == (behind.path, second.file, second.start)
    # what was left out, or added, is not known by the span any more
    if not follows or before.filtered or behind.filtered or before.size != first.end - first.start:
        return None
    return replace(
        behind,
        span=Span(first.file, first.start, second.end),
        size=before.size + behind.size,
        lines=before.lines + behind.lines,
    )
