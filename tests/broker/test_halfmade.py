"""Half-made files: what the dead left goes, what the living are at stays."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from broker.halfmade import clear_away, half_made

WRITER = """
import sys
from pathlib import Path
from broker.halfmade import half_made
with half_made(Path(sys.argv[1])) as file:
    print(file.name, flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_that_is_renamed_takes_its_place_and_leaves_nothing(tmp_path: Path) -> None:
    with half_made(tmp_path / "mark") as file:
        file.write(b"whole")
        file.flush()
        Path(file.name).replace(tmp_path / "mark")

    assert (tmp_path / "mark").read_bytes() == b"whole"
    assert names(tmp_path) == ["mark"]


def test_a_file_that_cannot_be_finished_is_removed(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not empty"), half_made(tmp_path / "mark") as file:
        Path(file.name).replace(tmp_path)

    assert names(tmp_path) == []


def test_what_a_killed_writer_left_goes_with_the_next_one_and_what_a_living_one_is_at_stays(
    tmp_path: Path,
) -> None:
    path = tmp_path / "[mark]"
    (tmp_path / "[mark].more").touch()
    (tmp_path / "mark.1.tmp").touch()  # of another file
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        theirs = Path(writer.stdout.readline().decode().strip())

        clear_away(path)
        while_it_lives = theirs.exists()
        writer.kill()
        writer.wait()
        left_by_the_kill = theirs.exists()
        with half_made(path):
            afterwards = theirs.exists()

    assert (while_it_lives, left_by_the_kill, afterwards) == (True, True, False)
    assert names(tmp_path) == ["[mark].more", "mark.1.tmp"]


def test_writers_that_clear_away_all_the_time_do_not_lose_each_others_files(tmp_path: Path) -> None:
    path, lost = tmp_path / "mark", []

    def write_often() -> None:
        for _ in range(300):
            with half_made(path) as file:
                file.write(b"whole")
                file.flush()
                try:
                    Path(file.name).replace(path)
                except FileNotFoundError:
                    lost.append(file.name)

    threads = [threading.Thread(target=write_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert lost == []
    assert names(tmp_path) == ["mark"]


def test_nothing_is_to_be_cleared_away_where_there_is_no_folder(tmp_path: Path) -> None:
    clear_away(tmp_path / "none" / "mark")

    assert names(tmp_path) == []
