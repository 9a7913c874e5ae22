"""A file may be on its way to the disk while it still grows; that is all that there is to it."""

import os
from pathlib import Path

import pytest

from receiver.storage import writeback


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


def test_a_file_system_is_synced_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "web01.log").write_bytes(b"line\n")

    assert writeback.sync_all(folder) is writeback.can_sync_all(folder)
    monkeypatch.setattr(writeback, "_TRUSTED", {"another"})
    assert not writeback.sync_all(folder)
    os.close(folder)


def test_what_the_system_says_of_a_failed_sync_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    os.close(folder)
    monkeypatch.setattr(writeback, "can_sync_all", lambda _: True)

    with pytest.raises(OSError, match="Bad file descriptor"):
        writeback.sync_all(folder)
