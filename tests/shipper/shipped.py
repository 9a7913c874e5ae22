"""What was shipped, put together by file, and what may be wrong with it. Knows nothing of what was written."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from broker.wire.message import Origin, decode_payload, encode_origin, split
from shipper.tail.reader import Block

AGENT = "1-aaaaaaaa"


@dataclass(slots=True)
class Verdict:
    """What is wrong with what was shipped, a sentence each, by kind."""

    missing: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)

    @property
    def is_perfect(self) -> bool:
        return not (self.missing or self.repeated or self.reordered or self.torn)

    def __str__(self) -> str:
        kinds = ("missing", "repeated", "reordered", "torn")
        found = {kind: getattr(self, kind) for kind in kinds}
        counts = ", ".join(f"{len(sentences)} {kind}" for kind, sentences in found.items())
        return "\n  ".join([counts, *(s for sentences in found.values() for s in sentences)])


def blocks_of(origin: Origin, payload: bytes) -> list[Block]:
    """Return what a message holds, a block for each of its sections."""
    lines = decode_payload(encode_origin(origin), payload)
    return [Block(section, part, origin.read_at) for section, part in split(origin, lines)]


def origins(blocks: Iterable[Block]) -> list[Origin]:
    """Return where blocks came from, as if each of them were sent in a message of its own."""
    return [Origin(AGENT, block.read_at, (block.section,)) for block in blocks]


def contents(blocks: Iterable[Block], verdict: Verdict) -> dict[str, bytes]:
    """Return what was shipped of each file, by its id and in the order of their first blocks."""
    found: dict[str, bytes] = {}
    for block in blocks:
        span = block.section.span
        known = len(found.setdefault(span.file, b""))
        if span.start < known:
            verdict.repeated.append(f"{span}, of which {known} bytes had come")
            continue
        if span.start > known:
            verdict.missing.append(f"a hole before {span}: {known} bytes had come")
        length = span.end - span.start
        found[span.file] += block.lines[:length]
        if block.lines[length:] not in {b"", b"\n"}:
            verdict.torn.append(f"{span} carries more: {shown(block.lines)}")
    return found


def shown(content: bytes) -> str:
    return f"{content[:60]!r} ({len(content)} bytes)"
