"""Positions move only forward, and a snapshot is read whole or refused."""

import json
import os
import random
import tracemalloc
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from nats_logship.wire.message import Identity, Origin, Section, Span
from nats_logship.wire.positions import Covered, Cursor, Positions, UnreadablePositions
from shipper.sources.files.memory import find_forgettable

IDENTITY = Identity(1, 4, "ab", 2, "cd")
DAY = 86_400 * 1_000_000_000
COVERED = b'{"streams": {"LOGS": {"agent": "", "sequence": %d}}, "files": []}'
FRAME_OF_A_TERABYTE = (
    zstandard.FRAME_HEADER + b"\xe0" + (2**40).to_bytes(8, "little") + b"\x01\x00\x00"
)
FIELDS = ["LOGS", "streams", "sequence", "files", "id", "path", "offset", "identity", "seen"]


def origin(file: str, end: int, agent: str = "1-aaaaaaaa") -> Origin:
    return Origin(agent, 5, (Section("/log/é\udcff", Span(file, 0, end), end, 1, IDENTITY),))


def test_positions_move_to_the_end_of_each_section_and_never_back() -> None:
    both = Origin("1-aaaaaaaa", 5, origin("f", 20).sections + origin("g", 5).sections)
    claim = Origin("2-aaaaaaaa", 1)

    positions = Positions().advance([both], 7).advance([origin("f", 10)], 3).advance([claim], 8)

    assert {name: cursor.offset for name, cursor in positions.files.items()} == {"f": 20, "g": 5}
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
def test_positions_survive_encoding(found: list[Cursor], sequence: int, agent: str) -> None:
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


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Positions().advance([origin("f", 50)], 7).encode())
    return found


@given(st.data())
def test_a_snapshot_with_another_value_is_read_or_refused(data: st.DataObject) -> None:
    whole = document()
    part = data.draw(st.sampled_from([whole, whole["files"][0], whole["streams"]["LOGS"]]))
    part[data.draw(st.sampled_from(sorted(part)))] = data.draw(JSON)

    with suppress(UnreadablePositions):
        found = Positions.decode(json.dumps(whole).encode())
        assert Positions.decode(found.encode()) == found


@given(st.integers(0), st.binary(max_size=8))
def test_a_large_snapshot_with_other_bytes_is_read_or_refused(at: int, other: bytes) -> None:
    data, start = bytearray(LARGE), at % len(LARGE)
    data[start : start + len(other)] = other

    with suppress(UnreadablePositions):
        Positions.decode(bytes(data))


def with_a_file(name: str, value: object) -> bytes:
    """Return a snapshot of one file, of which one thing is another."""
    whole = document()
    whole["files"][0][name] = value
    return json.dumps(whole).encode()


@pytest.mark.parametrize(
    "data",
    [
        *(b"", json.dumps(document()).encode()[:-20], b'{"streams": {}}', b"[" * 100_000),
        *(COVERED % sequence for sequence in (-1, 2**63)),
        *(with_a_file("offset", 2**63), with_a_file("id", "a b")),
        *(with_a_file("path", path) for path in ("/a\0b", "/\ud800", "/a" * 4096)),
        FRAME_OF_A_TERABYTE,
        zstandard.compress(json.dumps(document()).encode() + b" " * 10_000_000),
    ],
    ids=map(str, count()),
)
def test_anything_but_a_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadablePositions):
        Positions.decode(data)


def test_a_snapshot_of_millions_of_values_is_refused_before_they_are_made() -> None:
    noise = random.Random(1).randbytes(100_000).hex().encode()
    bomb = b'{"version":"%s","streams":{},"files":[%s[]]}' % (noise, b"[]," * 8_000_000)
    frame = zstandard.compress(bomb)
    tracemalloc.start()

    with pytest.raises(UnreadablePositions):
        Positions.decode(frame)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * len(bomb)


def test_only_files_neither_followed_nor_recently_read_are_forgettable() -> None:
    positions = Positions().advance([origin("old", 1), origin("followed", 1)], 1)

    left = positions.without(["followed"]).files.values()

    assert [cursor.file for cursor in find_forgettable(left, 8 * DAY)] == ["old"]
    assert find_forgettable(positions.files.values(), 6 * DAY) == []
