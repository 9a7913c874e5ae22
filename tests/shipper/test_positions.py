"""Positions move only forward, and a file of them is read whole or not at all."""

import json

import pytest

from broker.block import Identity, Origin, Span
from shipper.positions import Positions, PositionsUnreadable

IDENTITY = Identity(1, 4, "ab", 2, "cd")
DAY = 86_400 * 1_000_000_000


def origin(file: str, end: int, agent: str = "1-aaaaaaaa") -> Origin:
    return Origin(agent, "/log/é\udcff", Span(file, 0, end), IDENTITY, 1, 5)


def test_positions_stand_behind_the_last_stored_block_of_each_file() -> None:
    positions = Positions().advance([origin("f", 10), origin("g", 5), origin("f", 20)], 7)

    assert {name: cursor.offset for name, cursor in positions.files.items()} == {"f": 20, "g": 5}
    assert (positions.sequence, positions.agent) == (7, "1-aaaaaaaa")


def test_a_block_read_back_again_moves_no_position_back() -> None:
    positions = Positions().advance([origin("f", 20)], 7).advance([origin("f", 10)], 3)

    assert positions.files["f"].offset == 20


def test_a_claim_moves_no_position_but_counts_as_seen() -> None:
    claim = Origin("2-aaaaaaaa", "", None, None, 0, 1)

    positions = Positions().advance([origin("f", 20)], 7).advance([claim], 8)

    assert positions.files["f"].offset == 20
    assert (positions.sequence, positions.agent) == (8, "2-aaaaaaaa")


def test_what_encode_writes_decode_reads() -> None:
    positions = Positions().advance([origin("f", 10), origin("g", 5)], 7)

    assert Positions.decode(positions.encode()) == positions


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x00" * 100, id="zeros"),
        pytest.param(Positions().advance([origin("f", 1)], 1).encode()[:-20], id="torn"),
        pytest.param(b"[]", id="another document"),
        pytest.param(b'{"version": 1}', id="fields missing"),
        pytest.param(b'{"version": 1, "agent": "", "sequence": 1, "files": [1]}', id="list"),
        pytest.param(b'{"version": 0, "agent": "", "sequence": 1, "files": {}}', id="older"),
        pytest.param(b'{"version": 2, "agent": "", "sequence": 1, "files": {}}', id="newer"),
    ],
)
def test_what_is_no_positions_file_is_refused(data: bytes) -> None:
    with pytest.raises(PositionsUnreadable):
        Positions.decode(data)


def test_a_damaged_entry_spoils_the_file_rather_than_being_skipped() -> None:
    document = json.loads(Positions().advance([origin("f", 1), origin("g", 1)], 1).encode())
    document["files"]["f"]["identity"] = "?"

    with pytest.raises(PositionsUnreadable):
        Positions.decode(json.dumps(document).encode())


def test_only_files_that_are_neither_followed_nor_recently_read_are_forgettable() -> None:
    positions = Positions().advance([origin("old", 1), origin("followed", 1)], 1)

    forgettable = positions.forgettable({"followed"}, 8 * DAY)

    assert [cursor.file for cursor in forgettable] == ["old"]
    assert positions.forgettable(set(), 6 * DAY) == []
    assert set(positions.without(["old"]).files) == {"followed"}
