"""Makes rounds: one message each, with lines of one or more files as one zstd frame.

Cuts, joins and compresses; sends nothing.
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
    estimate_size,
    limit_content,
)
from shipper.settings import Compression
from shipper.sources.block import Block

LEAST_SIZE = 32 * 1024
"""Bytes of lines in the first round, and on the slowest connection, which needs 4 s for them."""

NEARBY_SIZE = 4 * 1024 * 1024
"""Bytes of lines in a round to a broker nearby: larger ones cost memory.

Rounds of 2 MiB take 7 % more CPU, and a fifth more at the broker.
"""

_NEAR, _QUICK, _SLOW = 0.06, 1.0, 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Round:
    """A message before it is sent; it has at least one section."""

    origin: Origin
    payload: bytes

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the message."""
        return encode_origin(self.origin)


def cut(blocks: Sequence[Block], most_bytes: int) -> Iterator[Sequence[Block]]:
    """Yield the blocks of each round: at most `most_bytes` of lines, or one larger block.

    The headers of each round are at most as large as the server takes.
    """
    most_bytes = min(most_bytes, MAX_LINES_BYTES)
    start = size = headers = 0
    for place, block in enumerate(blocks):
        size += len(block.lines)
        headers += estimate_size(block.section)
        if place > start and (size > most_bytes or headers >= MAX_SPANS_BYTES):
            yield blocks[start:place]
            start, size, headers = place, len(block.lines), estimate_size(block.section)
    if blocks[start:]:
        yield blocks[start:]


def next_size(size: int, round_: Round, took: float, most: int) -> int:
    """Return how many bytes of lines the next round may have, `most` at most.

    The last one, of up to `size` bytes, was acknowledged after `took` seconds. On a fast connection
    the size doubles, with a broker nearby up to `NEARBY_SIZE`. On a slow one it halves: answers to
    the server's pings wait behind a round, and the server drops connections whose answers are late.
    """
    if took < _NEAR * max(1, len(round_.payload) / NEARBY_SIZE):
        most = min(most, NEARBY_SIZE)
    if took > _SLOW:
        return min(most, max(LEAST_SIZE, size // 2))
    # a small round does not show how long a larger one takes
    is_full = sum(section.size for section in round_.origin.sections) >= size // 2
    return min(most, size * 2 if took < _QUICK and is_full else size)


_SMALLEST = 4096
"""Bytes of lines from which on `auto` compresses: smaller rounds gain little, and stay readable."""

_SAMPLED = 64 * 1024
"""Bytes of lines from which on `auto` compresses a sample first, of four pieces of 4 KiB.

A sample takes 30 us of CPU. Shipping lines that zstd makes 2 % smaller takes 2.8 s of CPU per GB
instead of 6.3 s, random bytes 2.6 s instead of 3.4 s.
"""
_PIECE, _PIECES, _LEAST_GAIN = 4096, 4, 0.05

_PARAMETERS = tuple(
    zstandard.ZstdCompressionParameters.from_level(1, window_log=window, hash_log=table)
    for window, table in ((21, 16), (10, 8))
)
"""Level 1 of zstd over the last 2 MiB, and over the last 1 KiB if that frame has too high a ratio.

2 MiB of the benchmark's log become 219 KB instead of 361 KB with plain level 1, both in 1.4 CPU
seconds per GB. Receivers refuse frames above `MAX_RATIO`, such as those of identical lines or
blanks. No block of a frame with a window of 1 KiB exceeds that ratio.
"""


class _Compressors(threading.local):
    """The compressors of one thread: two threads must not use one at the same time."""

    def __init__(self) -> None:
        self.all = [zstandard.ZstdCompressor(compression_params=one) for one in _PARAMETERS]


_compressors = _Compressors()


def make(blocks: Sequence[Block], agent: str, compression: Compression) -> Round:
    """Return the round of these blocks, compressed if that makes it smaller.

    Compression releases the interpreter's lock, so large rounds are made in a thread.
    """
    payload = blocks[0].lines if len(blocks) == 1 else b"".join(block.lines for block in blocks)
    compressed = False
    if compression == "zstd" or (compression == "auto" and _promises_gain(payload)):
        for compressor in _compressors.all:
            frame = compressor.compress(payload)
            if len(payload) <= limit_content(len(frame)):
                break
        if compressed := len(frame) < len(payload):
            payload = frame
    sections = tuple(block.section for block in blocks)
    return Round(Origin(agent, blocks[0].read_at, sections, compressed), payload)


def _promises_gain(lines: bytes) -> bool:
    """Whether a zstd frame is worth its CPU, here and at the receiver, going by a sample."""
    if (size := len(lines)) < _SAMPLED:
        return size >= _SMALLEST
    step = size // _PIECES
    sample = b"".join(lines[at : at + _PIECE] for at in range(step // 2, size, step))
    return len(_compressors.all[0].compress(sample)) <= len(sample) * (1 - _LEAST_GAIN)
