"""A host's files are looked at as they are at one moment, whatever a receiver does with them meanwhile."""

import os
from pathlib import Path

import pytest
import zstandard

from receiver.verify.received import received


def test_a_live_file_stays_what_it_was_though_it_is_closed_and_another_begun(
    tmp_path: Path,
) -> None:
    live, closed = tmp_path / "web.log", tmp_path / "web.log.000002"
    (tmp_path / "web.log.000001").write_bytes(b"one\n")
    live.write_bytes(b"two\n")

    with received(tmp_path, ("web.log",), 100) as found:
        with live.open("ab") as file:
            file.write(b"three\n")
        live.rename(closed)
        live.write_bytes(b"four, and more than was there\n")
        seen = b"".join(found.pieces(0))

    assert (seen, found.oldest) == (b"one\ntwo\n", 1)


def test_a_segment_that_is_compressed_meanwhile_is_read_under_its_new_name(tmp_path: Path) -> None:
    closed = tmp_path / "web.log.000001"
    closed.write_bytes(b"one\n")

    with received(tmp_path, ("web.log",), 100) as found:
        closed.with_name("web.log.000001.zst").write_bytes(zstandard.compress(b"one\n"))
        closed.unlink()
        seen = b"".join(found.pieces(1))

    assert seen == b"ne\n"


@pytest.mark.parametrize("name", ["web.log", "web.log.000001", "web.log.000001.zst"])
def test_a_pipe_is_no_received_file_and_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    closed = {} if name == "web.log" else {1: name}

    with (
        pytest.raises(OSError, match="no regular file") as refused,
        received(tmp_path, ("web.log",), 1, closed),
    ):
        pass

    assert refused.value.filename == str(tmp_path / name)
