"""Positions move only forward, and a snapshot of them is read whole or not at all."""

import json
import os
from contextlib import suppress

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.message import Identity, Origin, Section, Span
from broker.wire.positions import Covered, Cursor, Positions, PositionsUnreadable

IDENTITY = Identity(1, 4, "ab", 2, "cd")
DAY = 86_400 * 1_000_000_000


FIELDS = [
    "agent",
    "LOGS",
    "streams",
    "sequence",
    "files",
    "id",
    "path",
    "offset",
    "identity",
    "seen",
]


def origin(file: str, end: int, agent: str = "1-aaaaaaaa") -> Origin:
    return Origin(agent, 5, (Section("/log/é\udcff", Span(file, 0, end), end, 1, IDENTITY),))


def test_positions_stand_behind_every_section_of_a_message() -> None:
    (f,), (g,), (further,) = (
        one.sections for one in (origin("f", 10), origin("g", 5), origin("f", 20))
    )

    positions = Positions().advance([Origin("1-aaaaaaaa", 5, (f, g, further))], 7)

    assert {name: cursor.offset for name, cursor in positions.files.items()} == {"f": 20, "g": 5}


def test_a_message_read_back_again_moves_no_position_back() -> None:
    positions = Positions().advance([origin("f", 20)], 7).advance([origin("f", 10)], 3)

    assert positions.files["f"].offset == 20


def test_a_claim_moves_no_position_but_counts_as_seen() -> None:
    claim = Origin("2-aaaaaaaa", 1)

    positions = Positions().advance([origin("f", 20)], 7).advance([claim], 8)

    assert positions.files["f"].offset == 20
    assert positions.covered == {"LOGS": Covered(8, "2-aaaaaaaa")}


IDS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)
PATHS = st.binary(max_size=20).map(lambda path: os.fsdecode(path.replace(b"\0", b"")))
LARGE = Positions().advance([origin(f"f{n}", n + 1) for n in range(1000)], 7).encode()
NUMBERS = st.integers(0, 2**63 - 1)


@st.composite
def cursors(draw: st.DrawFn) -> Cursor:
    offset = draw(NUMBERS)
    identity = Identity(draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 1024)), "ab", 2, "cd")
    return Cursor(draw(IDS), draw(PATHS), offset, identity, draw(NUMBERS))


@given(st.lists(cursors(), max_size=20), NUMBERS, IDS)
def test_what_encode_writes_decode_reads_whatever_it_is(
    found: list[Cursor], sequence: int, agent: str
) -> None:
    covered = {"LOGS_1": Covered(sequence, agent)}
    positions = Positions({cursor.file: cursor for cursor in found}, covered)

    assert Positions.decode(positions.encode()) == positions


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6)
    ),
    max_leaves=20,
)


def assert_read_or_refused(data: bytes) -> None:
    with suppress(PositionsUnreadable):
        assert isinstance(Positions.decode(data), Positions)


@given(st.data())
def test_a_snapshot_in_which_a_value_is_another_is_read_or_refused(data: st.DataObject) -> None:
    document = json.loads(Positions().advance([origin("f", 50)], 7).encode())
    place = data.draw(
        st.sampled_from([document, document["files"][0], document["streams"]["LOGS"]])
    )
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)

    assert_read_or_refused(json.dumps(document).encode())


@given(st.integers(0), st.binary(max_size=8))
def test_a_large_snapshot_in_which_bytes_changed_is_read_or_refused(at: int, other: bytes) -> None:
    data = bytearray(LARGE)
    start = at % len(data)
    data[start : start + len(other)] = other

    assert_read_or_refused(bytes(data))


def with_a_file(name: str, value: object) -> bytes:
    """Return a snapshot of one file, of which one thing is another."""
    document = json.loads(Positions().advance([origin("f", 1)], 1).encode())
    document["files"][0][name] = value
    return json.dumps(document).encode()


def frame_that_claims(size: int) -> bytes:
    """Return the head of a zstd frame that says it holds so much."""
    return zstandard.FRAME_HEADER + b"\xe0" + size.to_bytes(8, "little") + b"\x01\x00\x00"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(Positions().advance([origin("f", 1)], 1).encode()[:-20], id="torn"),
        pytest.param(b'{"streams": {}}', id="fields missing"),
        pytest.param(
            b'{"streams": {"LOGS": {"agent": "", "sequence": -1}}, "files": []}', id="negative"
        ),
        pytest.param(
            b'{"streams": {"LOGS": {"agent": "", "sequence": 9223372036854775808}}, "files": []}',
            id="huge",
        ),
        pytest.param(with_a_file("offset", 2**63), id="an offset beyond all files"),
        pytest.param(with_a_file("id", "a b"), id="an id with a space"),
        pytest.param(with_a_file("path", "/a\0b"), id="a path with a zero"),
        pytest.param(with_a_file("path", "/\ud800"), id="a path that is no text"),
        pytest.param(with_a_file("path", "/a" * 4096), id="a long path"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(frame_that_claims(2**40), id="a bomb"),
    ],
)
def test_what_is_no_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(PositionsUnreadable):
        Positions.decode(data)


def test_only_files_that_are_neither_followed_nor_recently_read_are_forgettable() -> None:
    positions = Positions().advance([origin("old", 1), origin("followed", 1)], 1)

    forgettable = positions.forgettable({"followed"}, 8 * DAY)

    assert [cursor.file for cursor in forgettable] == ["old"]
    assert positions.forgettable(set(), 6 * DAY) == []
    assert set(positions.without(["old"]).files) == {"followed"}
