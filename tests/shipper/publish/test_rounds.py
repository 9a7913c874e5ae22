"""Rounds are cut within their limits, and say where every byte came from."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.message import (
    MAX_SPANS_BYTES,
    Identity,
    Origin,
    Section,
    Span,
    decode_origin,
    decode_payload,
    encode_origin,
    encoded_size,
    split,
)
from broker.wire.positions import Positions
from shipper.publish.rounds import LEAST_SIZE, NEARBY_SIZE, Round, cut, make, next_size
from shipper.settings import Compression
from shipper.tail.reader import Block

AGENT = "1-aaaaaaaa"
IDENTITY = Identity(7, 4, "ab", 4, "cd")
LATE = Identity(7, 1024, "ab", 64, "cd")
MIB = 1024 * 1024


def block(start: int, lines: bytes, file: str = "a", *, filtered: int = 0, added: int = 0) -> Block:
    """Return a block of a file, whose span has bytes more that were left out, or one less as a newline was added."""
    span = Span(file, start, start + len(lines) + filtered - added)
    section = Section(
        f"/log/{file}", span, len(lines), lines.count(b"\n"), IDENTITY, bool(filtered)
    )
    return Block(section, lines, 1)


@st.composite
def runs(draw: st.DrawFn) -> list[Block]:
    """Draw what a source gathers: runs of some files, each going on where the last of its file ended, or behind."""
    ends: dict[str, int] = {}
    made = []
    for _ in range(draw(st.integers(1, 12))):
        file = draw(st.sampled_from("abc"))
        lines = draw(st.text("ab\n", min_size=1, max_size=60)).encode()
        start = ends.get(file, 0) + draw(st.sampled_from([0, 0, 0, 7]))
        added = draw(st.booleans()) and lines.endswith(b"\n") and len(lines) > 1
        filtered = 0 if added else draw(st.sampled_from([0, 0, 5]))
        made.append(block(start, lines, file, filtered=filtered, added=added))
        ends[file] = made[-1].section.span.end
    return made


def contents(sections: list[tuple[Section, bytes]]) -> dict[str, bytes]:
    """Return the lines of each file in their order."""
    found: dict[str, bytes] = {}
    for section, lines in sections:
        found[section.span.file] = found.get(section.span.file, b"") + lines
    return found


def spans(sections: list[Section]) -> dict[str, list[Span]]:
    """Return the spans of each file in their order, those that touch each other as one."""
    found: dict[str, list[Span]] = {}
    for span in (section.span for section in sections):
        known = found.setdefault(span.file, [])
        if known and known[-1].end == span.start:
            known[-1] = Span(span.file, known[-1].start, span.end)
        else:
            known.append(span)
    return found


def received(rounds: list[Round]) -> list[tuple[Section, bytes]]:
    """Return what a receiver is told of rounds, and their lines, with all that it checks."""
    found: list[tuple[Section, bytes]] = []
    for one in rounds:
        origin = decode_origin(one.headers)
        assert origin == one.origin
        found += split(origin, decode_payload(one.headers, one.payload))
    return found


def told(blocks: list[Block]) -> list[tuple[Section, bytes]]:
    return [(one.section, one.lines) for one in blocks]


def all_ends(origins: list[Origin]) -> dict[str, int]:
    return {f: c.offset for f, c in Positions().advance(origins, 1).files.items()}


@given(runs(), st.integers(1, 100))
def test_cutting_keeps_every_block_in_order_within_the_limit(
    blocks: list[Block], most: int
) -> None:
    parts = list(cut(blocks, most))

    assert [one for part in parts for one in part] == blocks
    for part in parts:
        assert part
        assert len(part) == 1 or sum(len(one.lines) for one in part) <= most
    for part, following in pairwise(parts):
        assert sum(len(one.lines) for one in (*part, following[0])) > most


@pytest.mark.parametrize(
    ("path", "id_"),
    [
        pytest.param("/log/a", "f", id="short"),
        pytest.param("/" + "a" * 4095, "f" * 128, id="the longest"),
        pytest.param("/" + "%" * 4095, "%" * 128, id="the longest of what is quoted"),
        pytest.param("/" + "\udcff" * 4095, '"' * 128, id="no text"),
        pytest.param("/" + "é" * 2047, "\\" * 128, id="two bytes a character"),
        pytest.param("/" + "\x01" * 4095, "\\" * 128, id="control characters"),
        pytest.param("/" + "𝄞" * 1023, "f", id="four bytes a character"),
        pytest.param("/" + '"' * 4095, "f", id="quotes"),
    ],
)
def test_headers_stay_within_what_the_server_takes_whatever_files_are_called(
    path: str, id_: str
) -> None:
    identity = Identity(2**64 - 1, 1024, "f" * 128, 1024, "f" * 128)
    far = 2**63 - 1
    section = Section(path, Span(id_, far - 2**24, far), 2**23, 2**23, identity, filtered=True)

    rounds = [Origin(AGENT, 2**64 - 1, tuple(b.section for b in part)) for part in cut(
        [Block(section, b"x", 1)] * 700, MIB
    )]  # fmt: skip

    sizes = [len(encode_origin(origin)["Log-Spans"]) for origin in rounds]
    assert max(sizes) <= MAX_SPANS_BYTES
    assert sum(len(origin.sections) for origin in rounds) == 700
    each = MAX_SPANS_BYTES // encoded_size(section)
    assert [len(origin.sections) for origin in rounds[:-1]] == [each] * (len(rounds) - 1)


@given(runs())
def test_a_round_has_the_lines_of_its_blocks_and_says_where_each_byte_came_from(
    blocks: list[Block],
) -> None:
    round_ = make(blocks, AGENT, "zstd")

    found = received([round_])
    assert b"".join(lines for _, lines in found) == b"".join(one.lines for one in blocks)
    assert contents(found) == contents(told(blocks))
    assert spans([one for one, _ in found]) == spans([one.section for one in blocks])
    assert round_.origin.lines == sum(one.section.lines for one in blocks)
    assert all_ends([round_.origin]) == {
        one.section.span.file: one.section.span.end for one in blocks
    }


@pytest.mark.parametrize(
    ("mode", "compressed"),
    [("auto", [True, False]), ("zstd", [True, True]), ("none", [False, False])],
)
def test_a_mode_decides_what_is_compressed(mode: Compression, compressed: list[bool]) -> None:
    blocks = block(0, b"the same line\n" * 1000), block(0, b"one line\n" * 9)
    assert [make([one], AGENT, mode).origin.compressed for one in blocks] == compressed


def grown(took: float, most: int) -> int:
    size = NEARBY_SIZE
    for _ in range(10):
        size = next_size(size, 200, took, most)
    return size


@pytest.mark.parametrize(
    ("took", "most"),
    [
        pytest.param(0.01, NEARBY_SIZE, id="nearby"),
        pytest.param(0.1, 2 * NEARBY_SIZE, id="far away"),
    ],
)
def test_rounds_grow_on_a_quick_line_up_to_what_suits_it(took: float, most: int) -> None:
    assert grown(took, 2 * NEARBY_SIZE) == most


def test_large_rounds_shrink_once_the_broker_turns_out_to_be_near() -> None:
    full = 4 * NEARBY_SIZE

    assert next_size(full, full, 0.2, full) == NEARBY_SIZE
    assert next_size(full, full, 0.3, full) == full


def test_rounds_shrink_on_a_slow_line_but_not_to_nothing() -> None:
    assert grown(20.0, 4 * MIB) == LEAST_SIZE
