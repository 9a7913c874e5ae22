"""Rotation by time: aligned to the clock, by when lines reached the broker, not by when they are received."""

from datetime import timedelta
from pathlib import Path

from receiver.consume.assignment import Destination
from tests.receiver.stored import opened

HOUR = 3_600_000_000_000
HOURLY = timedelta(hours=1)


def write(root: Path, *pieces: tuple[int, bytes]) -> None:
    """Append pieces as batches of one piece each, as separate tasks would."""
    destination = Destination(root, root / ".state", 0, (), HOURLY)
    for moment, piece in pieces:
        with opened(destination) as partition, partition.writing() as output:
            live = partition.names.live_name("web01", None, moment)
            output.hold(live, piece, moment)
            output.flush()
            output.sync()
            with partition.store.transaction():
                output.put(partition.next_batch(1, 1), {})


def content(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}


def test_lines_of_another_hour_begin_another_file(tmp_path: Path) -> None:
    write(
        tmp_path, (5 * HOUR, b"a\n"), (6 * HOUR - 1, b"b\n"), (6 * HOUR, b"c\n"), (9 * HOUR, b"d\n")
    )

    assert content(tmp_path) == {
        "web01.log.000001": b"a\nb\n",
        "web01.log.000002": b"c\n",
        "web01.log": b"d\n",
    }


def test_a_clock_that_goes_back_rotates_nothing(tmp_path: Path) -> None:
    write(tmp_path, (6 * HOUR, b"a\n"), (5 * HOUR, b"b\n"), (6 * HOUR + 1, b"c\n"))

    assert content(tmp_path) == {"web01.log": b"a\nb\nc\n"}
