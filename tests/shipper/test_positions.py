"""Positions move only forward, and a file of them is read whole or not at all."""

import json
from contextlib import suppress
from zlib import crc32

import pytest

from broker.block import Identity, Origin, Span
from shipper.cursor import Cursor
from shipper.positions import Positions, PositionsUnreadable

IDENTITY = Identity(1, 4, "ab", 2, "cd")
DAY = 86_400 * 1_000_000_000
CHECKSUM = b', "crc32": '


def changed(positions: Positions, old: bytes, new: bytes) -> bytes:
    """Return a positions file that says something else, with a checksum that fits."""
    body = positions.encode().rpartition(CHECKSUM)[0].replace(old, new)
    return b'%b%b"%08x"}' % (body, CHECKSUM, crc32(body))


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


def test_a_file_whose_inode_takes_64_bits_is_remembered() -> None:
    cursor = Cursor("f", "/log/a", 10, Identity(2**64 - 1, 4, "ab", 2, "cd"), 5)
    positions = Positions(7, "1-aaaaaaaa", {"f": cursor})

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
    positions = Positions().advance([origin("f", 1), origin("g", 1)], 1)
    assert Positions.decode(changed(positions, b"?", b"?")) == positions

    with pytest.raises(PositionsUnreadable):
        Positions.decode(changed(positions, b'"1:4:ab:2:cd"', b'"?"'))


def test_a_bit_that_changed_on_the_disk_is_damage_or_changes_nothing() -> None:
    positions = Positions().advance([origin("f", 123)], 7)
    data, unharmed = positions.encode(), 0

    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with suppress(PositionsUnreadable):
            assert Positions.decode(bytes(damaged)) == positions
            unharmed += 1

    assert unharmed <= 8 * len("crc32")  # its name, without which it is an older program's


def test_a_file_of_an_older_program_has_no_checksum() -> None:
    positions = Positions().advance([origin("f", 123)], 7)
    document = json.loads(positions.encode())
    del document["crc32"]

    assert Positions.decode(json.dumps(document).encode()) == positions


def test_only_files_that_are_neither_followed_nor_recently_read_are_forgettable() -> None:
    positions = Positions().advance([origin("old", 1), origin("followed", 1)], 1)

    forgettable = positions.forgettable({"followed"}, 8 * DAY)

    assert [cursor.file for cursor in forgettable] == ["old"]
    assert positions.forgettable(set(), 6 * DAY) == []
    assert set(positions.without(["old"]).files) == {"followed"}


def passed(covered: int, offset: int, file: str = "f") -> Cursor:
    return Cursor(file, "/log/a", offset, IDENTITY, 9, covered)


@pytest.mark.parametrize(
    ("stored", "cursor", "offset"),
    [
        pytest.param([10], passed(10, 50), 50, id="behind what is stored"),
        pytest.param([], passed(0, 50), 50, id="from the beginning of a file never stored"),
        pytest.param([10], passed(20, 50), 10, id="behind what is not stored yet"),
        pytest.param([10, 30], passed(10, 20), 30, id="long ago"),
    ],
)
def test_lines_left_out_are_passed_only_where_all_before_them_is_stored(
    stored: list[int], cursor: Cursor, offset: int
) -> None:
    positions = Positions().advance([origin("f", end) for end in stored], 7)

    assert positions.passed([cursor]).files["f"].offset == offset


def test_more_lines_left_out_are_passed_and_a_block_that_covers_them_takes_their_place() -> None:
    positions = Positions().advance([origin("f", 10)], 7).passed([passed(10, 50)])
    positions = Positions.decode(positions.encode()).passed([passed(10, 90)])
    assert (positions.files["f"].offset, positions.files["f"].shipped) == (90, 10)

    again = positions.advance([origin("f", 10)], 7)
    further = positions.advance([origin("f", 120)], 8)
    by_another_agent = positions.advance([origin("f", 60)], 8)

    assert again.files["f"].offset == 90
    assert (further.files["f"].offset, further.files["f"].covered) == (120, None)
    assert (by_another_agent.files["f"].offset, by_another_agent.files["f"].covered) == (60, None)


@pytest.mark.parametrize("covered", [b"-1", b"51", b'"x"'])
def test_an_entry_that_covers_more_than_it_passed_is_damaged(covered: bytes) -> None:
    positions = Positions().passed([passed(0, 50)])

    with pytest.raises(PositionsUnreadable, match=r"damaged \(ValueError\)"):
        Positions.decode(changed(positions, b'"covered": 0', b'"covered": ' + covered))
