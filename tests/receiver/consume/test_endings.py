"""Unfinished lines: only what goes on with one is put behind it."""

import pytest

from receiver.consume.endings import Endings, Source

LONG, OTHER = ("web01", "a"), ("web01", "b")


@pytest.mark.parametrize(
    ("source", "follows", "written"),
    [
        pytest.param(LONG, True, b"rest\n", id="its rest"),
        pytest.param(OTHER, True, b"\nrest\n", id="a line of another file"),
        pytest.param(("web01", ""), True, b"\nrest\n", id="a line of no file"),
        pytest.param(LONG, False, b"\nrest\n", id="what stands behind a gap"),
    ],
)
def test_behind_a_piece_of_a_line_comes_its_rest_or_a_newline(
    source: Source, follows: bool, written: bytes
) -> None:
    endings = Endings()

    piece = endings.joined("web01.log", LONG, b"piece", follows=True)
    elsewhere = endings.joined("db.log", OTHER, b"line\n", follows=True)

    assert (piece, elsewhere) == (b"piece", b"line\n")
    assert endings.joined("web01.log", source, b"rest\n", follows=follows) == written
    assert endings.joined("web01.log", OTHER, b"next\n", follows=True) == b"next\n"


def test_several_pieces_of_a_line_are_one() -> None:
    endings = Endings({"web01.log": LONG})

    pieces = [endings.joined("web01.log", LONG, piece, follows=True) for piece in (b"a", b"b\n")]

    assert pieces == [b"a", b"b\n"]
    assert not endings.torn
