"""How fast lines are played, and how they stand on standard output."""

from pathlib import Path

import pytest

from receiver.consume.judging import Piece
from receiver.replay.replay import Pacing, Standard
from receiver.settings import read_speed

SECOND = 1_000_000_000
MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("text", "factor"),
    [("instant", 0), ("original", 1), ("10x", 10), ("0.5X", 0.5), ("2\N{MULTIPLICATION SIGN}", 2)],
)
def test_a_speed_is_a_word_or_a_factor(text: str, factor: float) -> None:
    assert read_speed(text) == factor


@pytest.mark.parametrize("text", ["", "fast", "10", "0x", "-2x", "x"])
def test_no_other_speed_is_taken(text: str) -> None:
    with pytest.raises(ValueError, match="instant, original"):
        read_speed(text)


def test_lines_pass_in_order_and_never_before_they_are_due() -> None:
    clock = [0.0]
    passed: list[tuple[float, list[int]]] = []

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    pacing = Pacing(2, lambda: clock[0], sleep)
    pieces = [Piece("h", "", n, at * SECOND, b"x\n") for n, at in enumerate((3, 3, 5, 9))]

    pacing.pass_on(pieces[:3], lambda group: passed.append((clock[0], [p.sequence for p in group])))
    pacing.pass_on(pieces[3:], lambda group: passed.append((clock[0], [p.sequence for p in group])))

    assert [entry for entry in passed if entry[1]] == [(0, [0, 1]), (1, [2]), (3, [3])]


def piece(payload: bytes, file: str) -> Piece:
    return Piece("web01", file, 1, 1, payload, "id")


def written(folder: Path, *pieces: Piece, prefixed: bool) -> bytes:
    path = folder / "stream"
    with path.open("wb") as file:
        Standard(file.fileno(), prefixed).take(pieces)
    return path.read_bytes()


def test_every_line_of_large_and_small_pieces_has_its_prefix_once(tmp_path: Path) -> None:
    lines = [b"x" * (number % 90) for number in range(50_000)]
    lines[7] = b"long" * MIB
    large, torn = b"".join(line + b"\n" for line in lines), b"torn"

    found = written(tmp_path, piece(large, "/a"), piece(torn, ""), prefixed=True)

    expected = [*(b"web01:/a: " + line for line in lines), b"web01: torn", b""]
    assert found.split(b"\n") == expected
