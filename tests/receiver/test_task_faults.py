"""A task killed at every named point, and run again: the files are as if nothing had happened."""

from pathlib import Path

import pytest

from receiver.consume.assignment import Ending, SessionLimits
from tests.receiver.partition import Partition, lines_of, message
from tests.receiver.points import IN_BATCH

pytestmark = pytest.mark.nats

_LONG = SessionLimits(60.0)
_HOSTS = ("web01", "db.example.net", "new")


def messages(first: int, count: int) -> list[tuple[str, bytes, dict[str, str]]]:
    made = []
    for number in range(first, first + count):
        host = _HOSTS[number % 2] if first == 0 else _HOSTS[number % 3]
        payload = f"{number:06d} line of {host}\nand another ".encode().ljust(99, b".") + b"\n"
        place = number * 100
        other = lines_of(f"other-{host}", place // 10, f"{number:09d}\n".encode())
        section = lines_of(f"file-{host}", place, payload)
        made.append(message(host, *([section, other] if number % 4 else [other, section])))
    return made


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    return Partition(logs_url, tmp_path, rotate_size=250)


@pytest.fixture
def reference(partition: Partition, tmp_path: Path) -> Partition:
    """Receive 27 messages without a fault."""
    twin = partition.with_folder(tmp_path / "reference")
    twin.claim()
    twin.publish(*messages(0, 27))
    report = twin.session(_LONG)
    assert len(report.done.closed) >= 4, "rotation is what is tested here"
    return twin


def check(own: Partition, twin: Partition) -> None:
    """Assert that the rest is received, and that the files are as if nothing had happened."""
    report = own.session(_LONG, own.offset().next)
    assert report.ended is Ending.SILENCE
    assert {h: own.read(h) for h in _HOSTS} == {h: twin.read(h) for h in _HOSTS}
    assert own.offset().next == 28


@pytest.mark.parametrize("point", IN_BATCH)
@pytest.mark.parametrize("passes", [0, 1], ids=["first batch", "later batch"])
def test_a_task_killed_at_any_point_leaves_nothing_behind_that_the_next_does_not_mend(
    reference: Partition, partition: Partition, tmp_path: Path, point: str, passes: int
) -> None:
    own = partition.with_folder(tmp_path / "own")
    own.move(1)

    passes *= point != "reported"
    killed = own.run_apart(1, fault=point, pull=4, session=_LONG, passes=passes)
    own.move(own.offset().next, 1)

    assert killed.returncode == -9, killed.stderr
    check(own, reference)


def test_a_task_killed_twice_while_it_undoes_is_still_undone(
    reference: Partition, partition: Partition, tmp_path: Path
) -> None:
    own = partition.with_folder(tmp_path / "own")
    own.move(1)

    codes = [own.run_apart(1, fault=point).returncode for point in ("stored", "undone", "undone")]

    assert codes == [-9, -9, -9]
    check(own, reference)
