"""Cuts the blocks of a round smaller where the broker takes no payload of their size (any more).

Decides; sends nothing. The bytes and their order stay as they are, and so does the last position of every block.
"""

from collections.abc import Iterator
from dataclasses import replace

from broker.block import Block, Span, decode_payload
from shipper.files.blocks import cut

__all__ = ["fit"]


def fit(blocks: tuple[Block, ...], most: int) -> tuple[Block, ...]:
    """Return the blocks with payloads of at most `most` bytes; those that fit are the same as before.

    A line that is longer goes in pieces. Only the last piece of a block says how the file is recognised there, so
    pieces must be stored all or none.
    """
    if all(len(block.payload) <= most for block in blocks):
        return blocks
    return tuple(piece for block in blocks for piece in _pieces(block, most))


def _pieces(block: Block, most: int) -> Iterator[Block]:
    if len(block.payload) <= most:
        yield block
        return
    origin = replace(block.origin, compressed=False)
    headers = {"Content-Encoding": "zstd"} if block.origin.compressed else None
    lines = decode_payload(headers, block.payload)
    runs = cut(bytearray(lines), 0, len(lines), most, most)
    runs += [rest] if (rest := lines[sum(map(len, runs)) :]) else []
    span, start, continues = origin.span, 0, block.continues
    for number, run in enumerate(runs, start=1):
        if span is not None and number < len(runs):
            part = Span(span.file, span.start + start, span.start + start + len(run))
            piece = replace(origin, span=part, identity=None, lines=run.count(b"\n"))
        else:
            until = span and Span(span.file, span.start + start, span.end)
            piece = replace(origin, span=until, lines=run.count(b"\n"))
        yield Block(piece, run, continues)
        start, continues = start + len(run), not run.endswith(b"\n")
