"""Readers of live files see each line once, whatever a killed task has left in the files."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from receiver.consume.assignment import SessionLimits
from tests.receiver.partition import Partition

pytestmark = pytest.mark.nats

LINES = [b"%06d ".ljust(17, b".") % number + b"\n" for number in range(30)]
WHOLE = b"".join(LINES)
_LONG = SessionLimits(60.0)


@pytest.fixture
def partition(partition: Partition) -> Partition:
    """Return a partition whose task was killed before the commit of all lines but ten."""
    partition.lines("web01", *LINES[:10])
    partition.receive()
    partition.lines("web01", *LINES[10:])
    assert partition.run_apart(11, fault="stored") == -9
    assert live(partition).read_bytes() == WHOLE
    return partition


def live(partition: Partition) -> Path:
    return partition.output / "web01.log"


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many bytes each truncation of a file has cut off, in this process."""
    found: list[int] = []
    real = os.ftruncate

    def cut(descriptor: int, length: int) -> None:
        found.append(os.fstat(descriptor).st_size - length)
        real(descriptor, length)

    monkeypatch.setattr(os, "ftruncate", cut)
    return found


@pytest.mark.parametrize("pull", [1, 300, 10_000])
def test_lines_of_a_killed_batch_are_kept_whatever_the_pulls(
    partition: Partition, cuts: list[int], pull: int
) -> None:
    done = replace(partition, pull=pull, limit=2 * pull).receive(11)

    assert live(partition).read_bytes() == WHOLE
    assert (cuts, done.notices, partition.offset().next) == ([], (), 31)


def zero(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(300)
        opened.write(bytes(300))


def shorten(file: Path) -> None:
    os.truncate(file, 311)


def lengthen(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"by others")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (zero, "web01.log: 300 bytes from byte 300 on, behind the committed length"),
        (lengthen, "web01.log: 9 bytes from byte 600 on, behind the committed length"),
        (shorten, None),
    ],
)
@pytest.mark.parametrize("pull", [1, 10_000])
def test_after_a_power_loss_only_bytes_that_differ_are_cut(
    partition: Partition,
    cuts: list[int],
    change: Callable[[Path], None],
    expected: str | None,
    pull: int,
) -> None:
    change(live(partition))

    done = replace(partition, pull=pull).receive(11)

    assert live(partition).read_bytes() == WHOLE
    assert len(done.notices) == len(cuts) == (expected is not None)
    assert all(one.startswith(expected or "-") for one in done.notices)
