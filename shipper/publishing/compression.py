"""Compression of blocks, a whole round in one go; a large one belongs on another thread."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import zstandard

from broker.block import Block
from shipper.settings import Compression

__all__ = ["compress"]

_SMALLEST = 4096  # below this, auto leaves a block readable for `nats sub`; it would gain little
# level 1 with matches from 7 bytes on, out of the whole of the largest block: logs cost up to a quarter less than by
# level 1, and fold into as little as half; lines without anything in common cost a tenth more
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


def compress(blocks: Sequence[Block], mode: Compression) -> list[Block]:
    """Return the blocks as they go on the wire; a frame that is no smaller than its lines is left out.

    Takes about 2 CPU seconds per GB of lines and lets go of the interpreter meanwhile: many are for a thread.
    """
    if mode == "none":
        return list(blocks)
    smallest = _SMALLEST if mode == "auto" else 0
    return [_pack(block, smallest) for block in blocks]


def _pack(block: Block, smallest: int) -> Block:
    if len(block.payload) < smallest:
        return block
    frame = _compressor().compress(block.payload)
    if len(frame) >= len(block.payload):
        return block
    return Block(replace(block.origin, compressed=True), frame)


def _compressor() -> zstandard.ZstdCompressor:
    # a compressor must not be used by two threads at once
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(compression_params=_FAST)
    compressor: zstandard.ZstdCompressor = _local.compressor
    return compressor
