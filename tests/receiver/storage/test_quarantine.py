"""Messages in quarantine: written once, never overwritten, and limited in space."""

import os
from pathlib import Path

import pytest

from nats_logship.wire.delivery import Delivery, RawMessage
from receiver.storage.quarantine import Quarantine
from tests.receiver.partition import Partition

STORED = 1_700_000_000_000_000_000
MADE = "2026-11-20T00:00:00.123456789Z"


def set_aside(folder: Path, *payloads: bytes, first: int = 7, made: str = MADE) -> None:
    """Set messages aside as one batch of partition 0."""
    (folder / "out").mkdir(exist_ok=True)
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


def test_a_file_with_other_content_is_not_overwritten(tmp_path: Path) -> None:
    folder, other = tmp_path / "out" / ".quarantine", tmp_path / "other"
    other.write_bytes(b"")
    folder.mkdir(parents=True)
    name = "p0-20261120T000000.123456789Z-000000000007"
    os.link(other, folder / f"{name}.msg")
    (folder / f".{name}.msg.new").symlink_to(other)  # a killed writer's is removed
    set_aside(tmp_path, b"one")
    (folder / f"{name}.msg").write_bytes(b"something else")

    set_aside(tmp_path, b"one")

    assert other.read_bytes() == b""
    assert (folder / f"{name}.msg").read_bytes() == b"something else"
    assert (folder / f"{name}-2.msg").read_bytes().endswith(b"one")
    (folder / f"{name}.msg").unlink()
    (folder / f"{name}.msg").symlink_to(other)
    with pytest.raises(OSError, match="symbolic link, which is not followed; move it away"):
        set_aside(tmp_path, b"one")
