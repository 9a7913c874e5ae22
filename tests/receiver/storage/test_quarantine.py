"""What is set aside stays as it was written, whatever stands in its folder and however often it is written again."""

import os
from pathlib import Path

import pytest

from broker.wire.delivery import Delivery, RawMessage
from receiver.storage.quarantine import Quarantine
from tests.receiver.partition import Partition

STORED = 1_700_000_000_000_000_000
MADE = "2026-11-20T00:00:00.123456789Z"


def set_aside(folder: Path, *payloads: bytes, first: int = 7, made: str = MADE) -> None:
    """Set messages aside as one batch of partition 0."""
    aside = Quarantine(folder / "out", 0, made)
    for sequence, payload in enumerate(payloads, first):
        aside.set_aside(
            Delivery(1, sequence, sequence, STORED, 0),
            RawMessage("logs.p0.a/b", "", b"", payload),
            "is no host",
        )
    aside.sync()


def payloads(folder: Path) -> list[bytes]:
    return [payload for _, payload in Partition("", folder).set_aside()]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "out" / ".quarantine").iterdir()}


@pytest.mark.parametrize("size", [0, 1, 100, -1], ids=["nothing", "a byte", "a part", "nearly all"])
def test_a_file_that_a_killed_writer_has_left_is_written_to_its_end(
    tmp_path: Path, size: int
) -> None:
    set_aside(tmp_path, b"one", b"two")
    whole = files(tmp_path)
    [path] = (tmp_path / "out" / ".quarantine").iterdir()
    path.write_bytes(path.read_bytes()[:size])

    set_aside(tmp_path, b"one", b"two")

    assert files(tmp_path) == whole


@pytest.mark.parametrize("count", [1, 2, 3], ids=["shorter", "the same", "longer"])
def test_a_batch_that_is_written_again_makes_no_second_file(tmp_path: Path, count: int) -> None:
    set_aside(tmp_path, b"one", b"two")

    set_aside(tmp_path, *[b"one", b"two", b"three"][:count])

    assert payloads(tmp_path) == [b"one", b"two", b"three"][: max(2, count)]


def test_a_bad_client_does_not_fill_the_disk(tmp_path: Path) -> None:
    folder = tmp_path / "out" / ".quarantine"
    for first in (1, 2, 3):
        set_aside(tmp_path, b"one", first=first)
        (last,) = folder.glob(f"*{first}.msg")
        os.truncate(last, 600 * 1024 * 1024)
        os.utime(last, (first, first))
    (folder / "p1-another's.msg").write_bytes(b"")

    set_aside(tmp_path, b"two", first=4)

    kept = {path.name.rpartition("-")[2] for path in folder.iterdir()}
    assert kept == {"000000000003.msg", "000000000004.msg", "another's.msg"}


def test_nothing_that_stands_where_a_file_is_to_be_is_overwritten(tmp_path: Path) -> None:
    folder, other = tmp_path / "out" / ".quarantine", tmp_path / "other"
    other.write_bytes(b"")
    folder.mkdir(parents=True)
    name = "p0-20261120T000000.123456789Z-000000000007"
    (folder / f"{name}.msg").symlink_to(other)
    os.link(other, folder / f"{name}-2.msg")
    os.mkfifo(folder / f"{name}-3.msg")
    (folder / f"{name}-4.msg").mkdir()
    (folder / f"{name}-5.msg").write_bytes(b"something else")

    set_aside(tmp_path, b"one")

    assert other.read_bytes() == b""
    assert (folder / f"{name}-5.msg").read_bytes() == b"something else"
    assert (folder / f"{name}-6.msg").read_bytes().endswith(b"one")


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / ".quarantine").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match=r"symbolic link.*out/\.quarantine"):
        set_aside(tmp_path, b"one")

    assert list((tmp_path / "elsewhere").iterdir()) == []
