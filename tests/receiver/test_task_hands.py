"""Files that others move, remove, truncate or replace, between batches and within one."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from receiver.consume.assignment import Cause, Done, ForcedRotation
from tests.receiver.partition import Partition, blocked

pytestmark = pytest.mark.nats


@pytest.fixture
def partition(partition: Partition) -> Partition:
    """Return a partition of which one line was received, `one`, into web01.log."""
    partition.lines("web01", b"one")
    partition.receive()
    return partition


def move(path: Path) -> None:
    path.rename(path.with_name("aside"))


def replace_by_others(path: Path) -> None:
    move(path)
    path.write_bytes(b"of others, torn")


OTHERS = {"aside": b"one\n", "web01.log.000001": b"of others, torn"}
HANDS: dict[str, tuple[Callable[[Path], None], dict[str, bytes], str]] = {
    "removed": (Path.unlink, {}, "is gone"),
    "moved": (move, {"aside": b"one\n"}, "is gone"),
    "cut": (lambda path: os.truncate(path, 2), {"web01.log.000001": b"on"}, "has 2 bytes now"),
    "emptied": (lambda path: os.truncate(path, 0), {}, "has 0 bytes now"),
    "replaced": (replace_by_others, OTHERS, "has 15 bytes now"),
}


@pytest.mark.parametrize(("hand", "left", "reason"), HANDS.values(), ids=HANDS)
def test_a_changed_file_is_reported_once_and_a_new_file_is_begun(
    partition: Partition, hand: Callable[[Path], None], left: dict[str, bytes], reason: str
) -> None:
    partition.lines("web01", b"two")
    hand(partition.live)

    done = partition.run(2)

    assert isinstance(done, Done)
    assert partition.files() == {**left, "web01.log": b"two\n"}
    (notice,) = done.notices
    assert notice.startswith("web01.log had 4 bytes of lines, and was changed, moved or removed")
    assert f"it {reason}" in notice
    partition.lines("web01", b"three")
    assert partition.receive(done.until).notices == ()
    assert partition.live.read_bytes() == b"two\nthree\n"


FOREIGN = b"by others\n"


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(FOREIGN)


@pytest.mark.parametrize("rotate_size", [0, 8], ids=["live", "before it is closed"])
@pytest.mark.parametrize("when", ["at a start", "in a session"])
def test_foreign_bytes_are_cut_and_logged(
    partition: Partition, rotate_size: int, when: str
) -> None:
    partition = replace(partition, rotate_size=rotate_size)
    lines = [b"two\n", b"six\n", b"ten\n"]
    notices: list[str] = []
    if when == "at a start":
        for number, line in enumerate(lines, 2):
            partition.lines("web01", line)
            append(partition.live)
            notices += partition.receive(number).notices
    else:
        with partition.long_session(2) as report:
            for number, line in enumerate(lines, 3):
                partition.lines("web01", line)
                partition.wait_until_committed(number)
                append(partition.live)
        notices += report.result().done.notices

    partition.lines("web01", b"end")
    partition.receive(5)
    assert partition.read("web01") == b"one\n" + b"".join(lines) + b"end\n"
    assert not any(b"others" in data for data in partition.files().values())
    assert len(notices) == (3 if when == "at a start" else 2)
    for notice in notices:
        assert notice.startswith(f"web01.log: {len(FOREIGN)} bytes")


@pytest.mark.parametrize("point", ["appended", "written", "files_synced", "synced", "stored"])
def test_foreign_bytes_in_mid_batch_tear_no_line(partition: Partition, point: str) -> None:
    lines = [b"%d\n" % number for number in range(9)]
    partition.lines("web01", *lines)
    with replace(partition, pull=1).stopped_at(point, 2, 1) as go_on:  # a message at a time
        append(partition.live)
        go_on()
    partition.receive(partition.offset().next)

    assert partition.read("web01") == b"".join([b"one\n", *lines])


@pytest.mark.parametrize("point", ["announced", "closed", "rotated", "written", "synced", "stored"])
def test_foreign_bytes_after_a_kill_are_in_no_file(partition: Partition, point: str) -> None:
    partition = replace(partition, rotate_size=4)
    partition.lines("web01", b"two", b"six")
    partition.run_apart(2, fault=point)
    append(partition.live)

    partition.receive(2)

    assert partition.read("web01") == b"one\ntwo\nsix\n"
    assert not any(b"others" in data for data in partition.files().values())


def test_a_file_truncated_in_mid_batch_is_written_again_whole(partition: Partition) -> None:
    partition.lines("web01", b"two", b"six")
    with partition.stopped_at("appended", 2, 1) as go_on:
        os.truncate(partition.live, 0)
        report = go_on()

    assert "was cut while lines were written" in report
    partition.receive(2)
    assert partition.read("web01") == b"two\nsix\n"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("out/web02.log", kind) for kind in ("link", "dangling link", "folder", "pipe")),
        *((f"state/p0.{kind}", "link") for kind in ("db", "lock")),
    ],
)
def test_a_path_that_is_no_regular_file_blocks_and_is_not_touched(
    partition: Partition, tmp_path: Path, name: str, kind: str
) -> None:
    ours, elsewhere, aside = tmp_path / name, tmp_path / "elsewhere", tmp_path / "aside"
    if ours.exists():
        shutil.copy(ours, elsewhere)
        ours.rename(aside)
    elif kind == "link":
        elsewhere.write_bytes(b"precious")
    match kind:
        case "folder":
            ours.mkdir()
        case "pipe":
            os.mkfifo(ours)
        case _:
            ours.symlink_to(elsewhere)
    before = elsewhere.read_bytes() if elsewhere.exists() else None
    partition.lines("web02", b"two")

    for _ in range(2):
        blocked(partition.run(2), Cause.DISK, str(ours), "move it away")

    assert (elsewhere.read_bytes() if elsewhere.exists() else None) == before
    ours.rmdir() if kind == "folder" else ours.unlink()
    if aside.exists():
        aside.rename(ours)
    partition.receive(2)
    assert partition.files() == {"web01.log": b"one\n", "web02.log": b"two\n"}


def test_a_segments_number_is_not_used_again_if_segments_are_gone(partition: Partition) -> None:
    partition.run(2, rotation=ForcedRotation.ALL)
    partition.lines("web01", b"two")
    done = partition.receive(2)
    (partition.output / "web01.log.000001").unlink()

    partition.run(done.until, rotation=ForcedRotation.ALL)

    assert partition.files() == {"web01.log.000002": b"two\n", "web01.log": b""}


def test_a_closed_file_that_the_store_does_not_know_is_kept(partition: Partition) -> None:
    (partition.output / "web01.log.000001.zst").write_bytes(b"of others")

    partition.run(2, rotation=ForcedRotation.ALL)

    closed = {"web01.log.000001.zst": b"of others", "web01.log.000002": b"one\n"}
    assert partition.files() == {**closed, "web01.log": b""}
