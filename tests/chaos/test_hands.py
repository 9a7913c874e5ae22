"""What other hands took counts where it stood, as far as the receiver named it, and what it did not name is told."""

from pathlib import Path

import pytest

from tests.chaos.hands import Taken, received_with, sizes_with, untold


@pytest.fixture
def taken(tmp_path: Path) -> Taken:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "web01.log.000001").write_bytes(b"1\n")
    (tmp_path / "out" / "web01.log").write_bytes(b"3\n")
    (tmp_path / "kept").write_bytes(b"2\n3\n")
    (tmp_path / "log").write_bytes(b"web01.log, of which 9 bytes were written, is gone\n")
    return Taken("web01", tmp_path / "kept", 1, tmp_path / "log", (tmp_path / "log").stat().st_size)


def say(taken: Taken, size: int) -> None:
    with taken.log.open("a") as log:
        log.write(f"WARNING x: web01.log, of which {size} bytes were committed, is gone: it was\n")


def test_what_was_told_stands_between_the_files_before_and_behind_it(
    tmp_path: Path, taken: Taken
) -> None:
    say(taken, 2)

    assert received_with(tmp_path / "out", "web01", [taken]) == b"1\n2\n3\n"
    assert sizes_with({"web01": 4}, [taken]) == {"web01": 6}
    assert untold([taken]) == []


def test_what_was_taken_in_silence_counts_nothing_and_is_told(tmp_path: Path, taken: Taken) -> None:
    assert received_with(tmp_path / "out", "web01", [taken]) == b"1\n3\n"
    assert untold([taken]) == ["web01: its live file of 4 bytes was taken, and nothing is said"]


def test_more_bytes_than_there_were_are_told(taken: Taken) -> None:
    say(taken, 5)

    assert untold([taken]) == ["web01: its live file had 4 bytes, and 5 are said"]
