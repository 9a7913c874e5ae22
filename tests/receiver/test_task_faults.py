"""A task killed at every named point, and run again: the files are as if nothing had happened."""

from dataclasses import replace
from pathlib import Path

import pytest

from receiver.consume.assignment import Done, Ending, SessionLimits
from receiver.faults import IN_BATCH
from tests.receiver.partition import Partition, lines_of, message

pytestmark = pytest.mark.nats

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
def reference(partition: Partition, tmp_path: Path) -> tuple[int, Partition]:
    """Receive two batches without a fault; return where the second begins."""
    twin = partition.with_folder(tmp_path / "reference")
    twin.claim()
    between = twin.publish(*messages(0, 7)) + 1
    first = twin.run(1)
    twin.publish(*messages(7, 20))
    second = twin.run(between)
    assert isinstance(first, Done)
    assert isinstance(second, Done)
    assert len(second.closed) >= 4, "rotation inside the batch is what is tested here"
    return between, twin


@pytest.mark.parametrize("point", IN_BATCH)
@pytest.mark.parametrize(
    ("batch", "pull"), [("first", 8192), ("second", 4)], ids=["one pull", "many pulls"]
)
def test_a_task_killed_at_any_point_leaves_nothing_behind_that_the_next_does_not_mend(
    reference: tuple[int, Partition],
    partition: Partition,
    tmp_path: Path,
    point: str,
    batch: str,
    pull: int,
) -> None:
    _, twin = reference
    own = partition.with_folder(tmp_path / "own")
    own.move(1)
    if batch == "second":
        assert isinstance(own.run(1), Done)
        begin = own.publish(*messages(27, 20)) - 19
        twin.move(begin)
        assert isinstance(twin.run(begin), Done)
        own.move(begin)

    killed = own.run_apart(own.offset().next, fault=point, pull=pull)
    next_ = own.offset().next
    own.move(next_, 2)
    outcome = own.run(next_, 2)

    assert killed.returncode == -9, killed.stderr
    assert isinstance(outcome, Done), outcome
    assert {h: own.read(h) for h in _HOSTS} == {h: twin.read(h) for h in _HOSTS}


@pytest.mark.parametrize("point", [point for point in IN_BATCH if point != "reported"])
def test_a_stay_killed_in_a_later_batch_loses_and_repeats_nothing(
    reference: tuple[int, Partition], partition: Partition, tmp_path: Path, point: str
) -> None:
    _, twin = reference
    own = replace(partition.with_folder(tmp_path / "own"), limit=1)
    own.move(1)
    own.run_apart(1, pull=4)
    begin = own.offset().next
    assert begin > 1

    long = SessionLimits(60.0)
    codes = [
        own.run_apart(begin, fault=point, pull=4, session=long, passes=1).returncode
        for _ in range(2)
    ]
    report = own.session(long, begin)

    assert codes[0] == -9
    assert report.ended is Ending.SILENCE
    assert {h: own.read(h) for h in _HOSTS} == {h: twin.read(h) for h in _HOSTS}
    assert own.offset().next == 28


def test_a_task_killed_twice_while_it_undoes_is_still_undone(
    reference: tuple[int, Partition], partition: Partition, tmp_path: Path
) -> None:
    _, twin = reference
    own = partition.with_folder(tmp_path / "own")
    own.move(1)

    codes = [own.run_apart(1, fault=point).returncode for point in ("stored", "undone", "undone")]
    outcome = own.run(1)

    assert codes == [-9, -9, -9]
    assert isinstance(outcome, Done)
    assert {h: own.read(h) for h in _HOSTS} == {h: twin.read(h) for h in _HOSTS}


@pytest.mark.parametrize("step", range(1, 7))
def test_an_undo_broken_off_between_any_two_of_its_steps_can_be_repeated(
    reference: tuple[int, Partition], partition: Partition, tmp_path: Path, step: int
) -> None:
    _, twin = reference
    own = partition.with_folder(tmp_path / "own")
    own.move(1)
    own.run_apart(1, fault="stored")
    closed = sorted(path.name for path in own.output.glob("*.log.*"))
    _undo_in_part(own.output, closed, step)

    outcome = own.run(1)

    assert isinstance(outcome, Done)
    assert {h: own.read(h) for h in _HOSTS} == {h: twin.read(h) for h in _HOSTS}


def _undo_in_part(output: Path, closed: list[str], step: int) -> None:
    """Do the first steps of an undo by hand: highest segments go first, the lowest becomes the live file again."""
    for name in sorted(closed, key=lambda n: -int(n[-6:]))[:step]:
        live = name[:-7]
        if name.endswith("000001"):
            (output / name).replace(output / live)
        else:
            (output / name).unlink()
