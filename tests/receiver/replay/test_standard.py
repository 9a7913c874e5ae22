"""Standard output as a sink: what is written of pieces, and how much of it is held."""

import os
import tracemalloc
from pathlib import Path

from receiver.consume.judging import Piece
from receiver.replay.stream import Standard

MIB = 1024 * 1024


def piece(payload: bytes, file: str) -> Piece:
    return Piece("web01", file, 1, 1, payload, "id")


def written(folder: Path, *pieces: Piece, prefixed: bool) -> bytes:
    path = folder / "stream"
    with path.open("wb") as file:
        Standard(file.fileno(), prefixed).take(pieces)
    return path.read_bytes()


def test_a_long_path_before_many_empty_lines_is_written_in_bounded_memory() -> None:
    lines = piece(b"\n" * (256 * 1024), "/" + "é" * 2000)
    with Path(os.devnull).open("wb") as file:
        tracemalloc.start()
        try:
            Standard(file.fileno(), prefixed=True).take([lines])
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert most < 8 * MIB


def test_every_line_of_large_and_small_pieces_has_its_prefix_once(tmp_path: Path) -> None:
    lines = [b"x" * (number % 90) for number in range(50_000)]
    lines[7] = b"long" * MIB
    large, torn = b"".join(line + b"\n" for line in lines), b"torn"

    found = written(tmp_path, piece(large, "/a"), piece(torn, ""), prefixed=True)

    expected = [*(b"web01:/a: " + line for line in lines), b"web01: torn", b""]
    assert found.split(b"\n") == expected


def test_without_prefix_all_is_written_as_it_is(tmp_path: Path) -> None:
    payloads = [b"%d\n" % number * 1000 for number in range(1500)]

    pieces = (piece(payload, "/a") for payload in payloads)
    assert written(tmp_path, *pieces, prefixed=False) == b"".join(payloads)


def test_a_long_path_is_cut_where_it_is_shown(tmp_path: Path) -> None:
    short, long = "/" + "a" * 255, "/" + "a" * 256

    found = written(tmp_path, piece(b"1\n", short), piece(b"2\n", long), prefixed=True)

    assert found.decode() == f"web01:{short}: 1\nweb01:{short}…: 2\n"
