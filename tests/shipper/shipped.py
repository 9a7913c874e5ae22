"""Shipped lines, put together by file, with the faults in them."""

from collections.abc import Iterable
from dataclasses import replace

from nats_logship.wire.message import Identity, Origin, Section, Span
from shipper.sources.block import Block

AGENT = "1-aaaaaaaa"
IDENTITY = Identity(7, 4, "ab", 0, "")


def block(
    start: int, lines: bytes, file: str = "f1", *, left_out: int = 0, continues: bool = False
) -> Block:
    """Return a block of a file, with a span of `left_out` bytes more than its lines."""
    span = Span(file, start, start + len(lines) + left_out)
    count, is_filtered = lines.count(b"\n"), left_out > 0
    goes_on = bool(lines) and not lines.endswith(b"\n")
    section = Section("/log/a", span, len(lines), count, IDENTITY, is_filtered)
    section = replace(section, rest="kept" if goes_on else "")
    return Block(section, lines, 1, continues, goes_on=goes_on)


def origins(blocks: Iterable[Block]) -> list[Origin]:
    """Return the origins of blocks, as if each were sent in a message of its own."""
    return [Origin(AGENT, block.read_at, (block.section,)) for block in blocks]


def contents(blocks: Iterable[Block], faults: list[str]) -> dict[str, bytes]:
    """Return the shipped bytes by file id, in the order of first blocks; note faults."""
    found: dict[str, bytes] = {}
    for block in blocks:
        span = block.section.span
        known = len(found.setdefault(span.file_id, b""))
        if span.start < known:
            faults.append(f"{span} came again: {known} bytes had come")
            continue
        if span.start > known:
            faults.append(f"a hole before {span}: {known} bytes had come")
        is_hole = block.section.filtered and not block.lines
        lines = bytes(span.end - span.start) if is_hole else block.lines
        found[span.file_id] += lines
        if len(lines) != span.end - span.start:
            faults.append(f"{span} carries other bytes: {shown(block.lines)}")
    return found


def shown(content: bytes) -> str:
    return f"{content[:60]!r} ({len(content)} bytes)"
