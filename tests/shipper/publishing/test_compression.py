"""Blocks are compressed where it gains something."""

import pytest

from broker.block import Block, Identity, Origin, Span, decode_payload, encode_origin
from shipper.publishing.compression import compress


def block(payload: bytes) -> Block:
    span = Span("f", 0, len(payload))
    return Block(Origin("1-aaaaaaaa", "/a", span, Identity(1, 0, "", 0, ""), 1, 1), payload)


LONG, SHORT = block(b"the same line\n" * 1000), block(b"one line, one line, one line\n" * 3)


@pytest.mark.parametrize(
    ("mode", "compressed"),
    [("auto", [True, False]), ("zstd", [True, True]), ("none", [False, False])],
)
def test_a_mode_decides_what_is_compressed(mode: str, compressed: list[bool]) -> None:
    packed = compress([LONG, SHORT], mode)  # type: ignore[arg-type]

    assert [b.origin.compressed for b in packed] == compressed


def test_lines_come_back_as_they_went_in() -> None:
    (packed,) = compress([LONG], "auto")

    assert len(packed.payload) < len(LONG.payload) / 10
    assert decode_payload(encode_origin(packed.origin), packed.payload) == LONG.payload


def test_what_would_grow_stays_as_it_is() -> None:
    tiny = block(b"x\n")

    assert compress([tiny], "zstd") == [tiny]
