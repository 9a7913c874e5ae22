"""Blocks that are too large for the broker are cut smaller without losing a byte or a position."""

import zstandard
from hypothesis import given
from hypothesis import strategies as st

from broker.block import Block, Identity, Origin, Span
from shipper.cursor import after
from shipper.publishing.fitting import fit

IDENTITY = Identity(7, 4, "ab", 4, "cd")


def block(start: int, lines: bytes, span_end: int | None = None) -> Block:
    end = start + len(lines) if span_end is None else span_end
    origin = Origin("1-aaaaaaaa", "/log/a", Span("f1", start, end), IDENTITY, lines.count(b"\n"), 1)
    return Block(origin, lines)


def packed(whole: Block) -> Block:
    origin = Origin(*(getattr(whole.origin, n) for n in Origin.__slots__[:6]), compressed=True)
    return Block(origin, zstandard.compress(whole.payload))


def test_blocks_that_fit_stay_the_same_objects() -> None:
    blocks = (block(0, b"a\n"), block(2, b"b\n"))

    assert fit(blocks, 2) is blocks


@given(
    st.lists(st.text("ab\n", min_size=1, max_size=60).map(str.encode), min_size=1, max_size=5),
    st.integers(1, 20),
)
def test_every_byte_and_every_last_position_stays(payloads: list[bytes], most: int) -> None:
    starts = [sum(map(len, payloads[:n])) for n in range(len(payloads))]
    blocks = tuple(map(block, starts, payloads))

    pieces = fit(blocks, most)

    assert b"".join(p.payload for p in pieces) == b"".join(payloads)
    assert all(0 < len(p.payload) <= most for p in pieces)
    spans = [p.origin.span for p in pieces if p.origin.span]
    assert [s.start for s in spans] == [0, *(s.end for s in spans[:-1])]
    assert [after(p.origin) for p in pieces if p.origin.identity] == [
        after(b.origin) for b in blocks
    ]
    assert sum(p.origin.lines for p in pieces) == sum(b.origin.lines for b in blocks)


def test_a_line_longer_than_the_limit_goes_in_pieces_that_continue() -> None:
    pieces = fit((block(10, b"x\n" + b"y" * 5 + b"\n"),), 3)

    assert [p.payload for p in pieces] == [b"x\n", b"yyy", b"yy\n"]
    assert [p.continues for p in pieces] == [False, False, True]


def test_the_newline_that_no_span_counts_stays_uncounted() -> None:
    pieces = fit((block(0, b"aa\nbb\n", span_end=5),), 3)

    assert [str(p.origin.span) for p in pieces] == ["f1:0-3", "f1:3-5"]


def test_a_compressed_block_is_unfolded_before_it_is_cut() -> None:
    lines = bytes(range(32, 127)) * 20 + b"\n"
    whole = packed(block(0, lines))

    pieces = fit((whole,), 64)

    assert b"".join(p.payload for p in pieces) == lines
    assert not any(p.origin.compressed for p in pieces)
