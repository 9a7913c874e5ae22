"""Rounds: what is published at a time, one message of lines of one or more files, compressed as one frame where that pays.

Cuts, joins and compresses; never sends. One round is in flight at a time, so it can name the subject's last sequence.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import zstandard

from nats_logship.wire.message import (
    MAX_LINES_BYTES,
    MAX_SPANS_BYTES,
    Origin,
    encode_origin,
    encoded_size,
    largest_content,
)
from shipper.settings import Compression
from shipper.sources.block import Block

LEAST_SIZE = 32 * 1024
"""Bytes of lines in the first round, and on the slowest line, which takes four seconds for them."""

NEARBY_SIZE = 2 * 1024 * 1024
"""Bytes of lines in a round to a broker nearby: a larger one takes memory, and is no faster."""

_NEAR, _QUICK, _SLOW = 0.06, 1.0, 5.0  # seconds


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
    """Yield the blocks of each round, of `most_bytes` of lines at most or one larger block, with headers that the server takes."""
    most_bytes = min(most_bytes, MAX_LINES_BYTES)
    start = size = headers = 0
    for place, block in enumerate(blocks):
        size += len(block.lines)
        headers += encoded_size(block.section)
        if place > start and (size > most_bytes or headers >= MAX_SPANS_BYTES):
            yield blocks[start:place]
            start, size, headers = place, len(block.lines), encoded_size(block.section)
    if blocks[start:]:
        yield blocks[start:]


def next_size(size: int, round_: Round, took: float, most: int) -> int:
    """Return how many bytes of lines the next round may have after one of about `size` at most.

    That one took `took` seconds to be acknowledged.

    The server's pings are answered behind a round, so on a slow line the round must
    stay well below the time after which the server takes the connection for dead. On a quick line
    the size doubles, up to `most`, and with a broker nearby to `NEARBY_SIZE`.
    """
    if took < _NEAR * max(1, len(round_.payload) / NEARBY_SIZE):
        most = min(most, NEARBY_SIZE)
    if took > _SLOW:
        return min(most, max(LEAST_SIZE, size // 2))
    # a small round says nothing of what a larger one takes
    is_full = sum(section.size for section in round_.origin.sections) >= size // 2
    return min(most, size * 2 if took < _QUICK and is_full else size)


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
# no block of it holds more than 1 KiB, so that identical lines or blanks are not compressed to less
# than receivers take (MAX_RATIO)
_WEAK = zstandard.ZstdCompressionParameters(
    window_log=10,
    hash_log=8,
    chain_log=6,
    search_log=1,
    min_match=7,
    target_length=0,
    strategy=zstandard.STRATEGY_FAST,
    write_content_size=True,
)


class _Compressors(threading.local):
    """Those of a thread, as two threads must not use one at once."""

    def __init__(self) -> None:
        self.fast = zstandard.ZstdCompressor(compression_params=_FAST)
        self.weak = zstandard.ZstdCompressor(compression_params=_WEAK)

    def compress(self, lines: bytes) -> bytes:
        """Return a frame of the lines that receivers take."""
        frame = self.fast.compress(lines)
        return frame if len(lines) <= largest_content(len(frame)) else self.weak.compress(lines)


_compressors = _Compressors()


def make(blocks: Sequence[Block], agent: str, compression: Compression) -> Round:
    """Return the round of some blocks, as one zstd frame unless that is no smaller.

    Compression takes about 2 CPU seconds per GB of lines and lets go of the interpreter meanwhile: many are for a thread.
    """
    payload = blocks[0].lines if len(blocks) == 1 else b"".join(block.lines for block in blocks)
    compressed = False
    if compression == "zstd" or (compression == "auto" and len(payload) >= _SMALLEST):
        frame = _compressors.compress(payload)
        if compressed := len(frame) < len(payload):
            payload = frame
    sections = tuple(block.section for block in blocks)
    return Round(Origin(agent, blocks[0].read_at, sections, compressed), payload)
