"""Makes the messages of rounds: their lines compressed as one frame, and divided where the broker takes no such message."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import zstandard

from broker.wire.message import Origin, Section, Span, decode_payload, split
from shipper.block import Block
from shipper.publishing.rounds import Round, sections_of
from shipper.settings import Compression

__all__ = ["compress", "fitting", "make"]

_SMALLEST = 4096  # below this, auto leaves lines readable for `nats sub`; it would gain little
# level 1 with matches from 7 bytes on, out of the last 2 MiB: logs cost up to a quarter less than by level 1, and are
# compressed to as little as half; lines without anything in common cost a tenth more
_FAST = zstandard.ZstdCompressionParameters(
    window_log=21,
    hash_log=16,
    chain_log=12,
    search_log=1,
    min_match=7,
    target_length=0,
    strategy=zstandard.STRATEGY_FAST,
    write_content_size=True,
)
_local = threading.local()


def make(blocks: Sequence[Block], agent: str, compression: Compression) -> Round:
    """Return the round of some blocks; compressing many is for a thread."""
    payload, compressed = compress([block.lines for block in blocks], compression)
    return Round(Origin(agent, blocks[0].read_at, sections_of(blocks), compressed), payload)


def fitting(round_: Round, most: int, compression: Compression) -> list[Round]:
    """Return a round as rounds whose payloads have at most `most` bytes, as a broker takes them; mostly the round itself.

    It is halved until that is so, behind a line where there is more than one. The file of a section that is cut is not
    recognised at that place: should only a first part be stored, its lines are sent again, and dropped by the receiver.
    """
    if len(round_.payload) <= most:
        return [round_]
    halves = _halves(round_, compression)
    return [part for half in halves for part in fitting(half, most, compression)]


def _halves(round_: Round, compression: Compression) -> tuple[Round, Round]:
    lines = decode_payload(round_.headers, round_.payload)
    middle = len(lines) // 2
    end = lines.rfind(b"\n", 0, middle) + 1 or lines.find(b"\n", middle, len(lines) - 1) + 1
    place = end or middle
    first: list[Section] = []
    second: list[Section] = []
    start = 0
    for section, run in split(round_.origin, lines):
        inside = min(max(place - start, 0), section.size)
        if inside == section.size:
            first.append(section)
        elif not inside:
            second.append(section)
        else:
            before, behind = _parts(section, run, inside)
            first.append(before)
            second.append(behind)
        start += section.size
    return (
        _half(round_, first, lines[:place], compression),
        _half(round_, second, lines[place:], compression),
    )


def compress(runs: Sequence[bytes], mode: Compression) -> tuple[bytes, bool]:
    """Return runs of lines as they go on the wire, and whether that is a zstd frame; one that is no smaller is left out.

    Takes about 2 CPU seconds per GB of lines and lets go of the interpreter meanwhile: many are for a thread.
    """
    lines = runs[0] if len(runs) == 1 else b"".join(runs)
    if mode == "none" or (mode == "auto" and len(lines) < _SMALLEST):
        return lines, False
    frame = _compressor().compress(lines)
    return (lines, False) if len(frame) >= len(lines) else (frame, True)


def _compressor() -> zstandard.ZstdCompressor:
    # a compressor must not be used by two threads at once
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(compression_params=_FAST)
    compressor: zstandard.ZstdCompressor = _local.compressor
    return compressor


def _parts(section: Section, run: bytes, inside: int) -> tuple[Section, Section]:
    span = section.span
    place = span.start + inside
    newlines = run.count(b"\n", 0, inside)
    before = replace(
        section,
        span=Span(span.file, span.start, place),
        size=inside,
        lines=newlines,
        identity=None,
    )
    behind = replace(
        section,
        span=Span(span.file, place, span.end),
        size=section.size - inside,
        lines=section.lines - newlines,
    )
    return before, behind


def _half(round_: Round, sections: Sequence[Section], lines: bytes, mode: Compression) -> Round:
    payload, compressed = compress([lines], mode)
    origin = replace(round_.origin, sections=tuple(sections), compressed=compressed)
    return Round(origin, payload)
