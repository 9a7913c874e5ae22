"""Rounds are within their limits, and name the origin of every byte."""

import random
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nats_logship.wire.message import (
    MAX_SPANS_BYTES,
    Identity,
    Origin,
    Section,
    Span,
    decode_origin,
    decode_payload,
    encode_origin,
    estimate_size,
    split_sections,
)
from shipper.publish.rounds import LEAST_SIZE, NEARBY_SIZE, cut, make, next_size
from shipper.settings import Compression
from shipper.sources.block import Block
from tests.shipper.shipped import AGENT, block

FULL = 4 * NEARBY_SIZE


@st.composite
def runs(draw: st.DrawFn) -> list[Block]:
    """Draw runs of some files, each of which begins at the end of the file's last one, or later."""
    ends: dict[str, int] = {}
    made = []
    for _ in range(draw(st.integers(1, 12))):
        file = draw(st.sampled_from("abc"))
        lines = draw(st.text("ab\n", min_size=1, max_size=60)).encode()
        start = ends.get(file, 0) + draw(st.sampled_from([0, 0, 0, 7]))
        left_out = draw(st.sampled_from([0, 0, 5]))
        made.append(block(start, lines, file, left_out=left_out))
        ends[file] = made[-1].section.span.end
    return made


@given(runs(), st.integers(1, 100))
def test_rounds_keep_every_block_in_order_and_within_the_limit(
    blocks: list[Block], most: int
) -> None:
    parts = list(cut(blocks, most))
    found: list[tuple[Section, bytes]] = []
    for one in (make(part, AGENT, "zstd") for part in parts):
        assert decode_origin(one.headers) == one.origin
        found += split_sections(one.origin, decode_payload(one.headers, one.payload))

    assert found == [(one.section, one.lines) for one in blocks]
    for part in parts:
        assert len(part) == 1 or sum(len(one.lines) for one in part) <= most
    for part, following in pairwise(parts):
        assert sum(len(one.lines) for one in (*part, following[0])) > most


@pytest.mark.parametrize(
    ("letter", "length", "id_"),
    [
        *(("a", 7, "f"), ("a", 4095, "f" * 128), ("%", 4095, "%" * 128), ('"', 4095, "f")),
        *(("\udcff", 4095, '"' * 128), ("\x01", 4095, "\\" * 128)),  # no text, a control character
        *(("é", 2047, "\\" * 128), ("𝄞", 1023, "f")),  # two and four bytes a character
    ],
)
def test_headers_fit_the_server_for_any_file_names(letter: str, length: int, id_: str) -> None:
    identity = Identity(2**64 - 1, 1024, "f" * 128, 1024, "f" * 128)
    path, far = "/" + letter * length, 2**63 - 1
    section = Section(path, Span(id_, far - 2**24, far), 2**23, 2**23, identity, filtered=True)

    parts = cut([Block(section, b"x", 1)] * 700, 1 << 20)

    rounds = [Origin(AGENT, 2**64 - 1, tuple(one.section for one in part)) for part in parts]
    sizes = [len(encode_origin(origin)["Log-Spans"]) for origin in rounds]
    assert max(sizes) <= MAX_SPANS_BYTES
    assert sum(len(origin.sections) for origin in rounds) == 700
    each = MAX_SPANS_BYTES // estimate_size(section)
    assert [len(origin.sections) for origin in rounds[:-1]] == [each] * (len(rounds) - 1)


@pytest.mark.parametrize(
    ("mode", "compressed"),
    [("auto", [True, False]), ("zstd", [True, True]), ("none", [False, False])],
)
def test_the_compression_mode_decides_which_rounds_are_compressed(
    mode: Compression, compressed: list[bool]
) -> None:
    blocks = block(0, b"the same line\n" * 1000), block(0, b"one line\n" * 9)
    assert [make([one], AGENT, mode).origin.compressed for one in blocks] == compressed


@pytest.mark.parametrize(("noise", "compressed"), [(1.0, False), (0.98, False), (0.8, True)])
def test_a_large_round_that_hardly_shrinks_is_sent_as_it_is(noise: float, compressed: bool) -> None:
    chance, size = random.Random(1), int(100 * noise)
    lines = b"".join(chance.randbytes(size) + b"x" * (100 - size) for _ in range(10_000))

    made = make([block(0, lines)], AGENT, "auto")

    assert made.origin.compressed is compressed
    assert decode_payload(made.headers, made.payload) == lines


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.integers(1, 200_000)), max_size=3),
    st.binary(max_size=20_000),
)
@example([(b"\0", 2_000_000)], b"")
@example([(b"y\n", 1_000_000)], b"")
@example([(b"x" * 999 + b"\n", 9_000)], b"")
@example([(b"the same line\n", 4_682)], b"")
def test_a_round_of_any_lines_has_a_ratio_that_receivers_take(
    parts: list[tuple[bytes, int]], rest: bytes
) -> None:
    lines = b"".join(piece * count for piece, count in parts)[: 2 * NEARBY_SIZE] + rest + b"\n"

    made = make([block(0, lines)], AGENT, "zstd")

    assert decode_payload(made.headers, made.payload) == lines


@pytest.mark.parametrize("line", [b"\0", b"\n", b"y\n", b"the same line of a log\n"])
def test_identical_lines_are_compressed_too(line: bytes) -> None:
    lines = line * (NEARBY_SIZE // len(line))

    assert len(make([block(0, lines)], AGENT, "auto").payload) < len(lines) // 50


@pytest.mark.parametrize(
    ("size", "sent", "took", "most"),
    [
        pytest.param(LEAST_SIZE, FULL, 0.01, NEARBY_SIZE, id="nearby"),
        pytest.param(LEAST_SIZE, FULL, 0.3, 2 * NEARBY_SIZE, id="far away"),
        pytest.param(LEAST_SIZE, 200, 0.3, LEAST_SIZE, id="small rounds say nothing"),
        pytest.param(NEARBY_SIZE, 200, 20.0, LEAST_SIZE, id="a slow line"),
        pytest.param(FULL, FULL, 0.2, NEARBY_SIZE, id="a broker that turns out to be near"),
        pytest.param(FULL, FULL, 0.3, FULL, id="large rounds take their time"),
    ],
)
def test_the_round_size_adapts_to_the_connection(
    size: int, sent: int, took: float, most: int
) -> None:
    sent_round = make([block(0, random.Random(1).randbytes(sent))], AGENT, "none")
    for _ in range(10):
        size = next_size(size, sent_round, took, max(size, 2 * NEARBY_SIZE))

    assert size == most
