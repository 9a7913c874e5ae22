"""A file may be on its way to the disk while it still grows; that is all that there is to it."""

import os
from pathlib import Path

from receiver.writing import writeback


def test_a_file_grows_on_while_it_is_being_written_back(tmp_path: Path) -> None:
    path = tmp_path / "web01.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    for _ in range(20):
        os.write(descriptor, b"x" * 100_000)
        writeback.begin(descriptor)
    os.fdatasync(descriptor)
    os.close(descriptor)

    assert path.read_bytes() == b"x" * 2_000_000


def test_what_cannot_be_begun_is_left_to_the_sync() -> None:
    reader, writer = os.pipe()

    writeback.begin(writer)

    os.close(reader)
    os.close(writer)
