"""The bond of files and journal: whatever separates the two is seen before anything is written."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from receiver.writing import journal
from receiver.writing.bond import Folders
from receiver.writing.evidence import Bond
from receiver.writing.journal import Batch

DIES = """
import os, signal, sys
from pathlib import Path
from receiver.writing.bond import Folders
left = int(sys.argv[3])
sync = os.fsync
def die_at_the_last(file):
    global left
    left -= 1
    if left < 0: os.kill(os.getpid(), signal.SIGKILL)
    sync(file)
os.fsync = die_at_the_last
Folders(Path(sys.argv[1]), Path(sys.argv[2]), 3).tie(7, 40)
"""


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    folders = Folders(tmp_path / "out", tmp_path / "state", 3)
    assert folders.look().bond is Bond.NEW
    folders.tie(7, 40)
    return folders


def _remove_journal(folders: Folders) -> None:
    (folders.state / "p3.journal").unlink()


@pytest.mark.parametrize("name", [".bonds", ".bonds/p3", ".place"])
def test_a_link_in_the_place_of_what_binds_them_is_refused_by_name(
    folders: Folders, tmp_path: Path, name: str
) -> None:
    (folders.output / name).rename(tmp_path / "elsewhere")
    (folders.output / name).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic link") as refused:
        folders.look()

    assert refused.value.filename == str(folders.output / name)


def test_folders_that_were_tied_are_whole_and_the_journal_has_begun(folders: Folders) -> None:
    folders.tie(8, 50)

    seen = folders.look()

    assert (seen.bond, seen.last) == (Bond.WHOLE, Batch(7, 40, None, ()))


def test_what_somebody_died_over_while_tying_is_gone_once_they_are_tied(tmp_path: Path) -> None:
    before: set[str] = set()
    for syncs in range(40):
        output, state = tmp_path / str(syncs) / "out", tmp_path / str(syncs) / "state"
        output.mkdir(parents=True)
        state.mkdir()
        words = [sys.executable, "-c", DIES, str(output), str(state), str(syncs)]
        ended = subprocess.run(words, check=False).returncode
        before |= half_made_in(tmp_path)

        Folders(output, state, 3).tie(7, 40)

        assert half_made_in(tmp_path) == set()
        if ended == 0:
            break
    assert ended == 0
    assert before, "at some points something is left"


def half_made_in(folder: Path) -> set[str]:
    """Return the files of a partition 3 that are none which it needs."""
    needed = {".place", "p3", "p3.bond", "p3.journal"}
    return {path.name for path in folder.rglob("*") if path.is_file()} - needed


def test_moved_with_all_that_is_in_them_they_are_whole(folders: Folders, tmp_path: Path) -> None:
    elsewhere = tmp_path / "other machine"
    shutil.copytree(folders.output, elsewhere / "out")
    shutil.copytree(folders.state, elsewhere / "state")

    seen = Folders(elsewhere / "out", elsewhere / "state", 3).look()

    assert seen.bond is Bond.WHOLE


@pytest.mark.parametrize(
    ("happens", "bond"),
    [
        pytest.param(lambda f: shutil.rmtree(f.output), Bond.OTHER_OUTPUT, id="output replaced"),
        pytest.param(lambda f: shutil.rmtree(f.state), Bond.OTHER_STATE, id="state removed"),
        pytest.param(_remove_journal, Bond.NO_JOURNAL, id="journal removed"),
    ],
)
def test_what_is_taken_away_is_seen(
    folders: Folders, happens: Callable[[Folders], None], bond: Bond
) -> None:
    happens(folders)

    assert folders.look().bond is bond


def test_another_folder_on_either_side_is_seen_and_another_partition_is_not_concerned(
    folders: Folders, tmp_path: Path
) -> None:
    other = tmp_path / "other"

    assert replace(folders, state=other).look().bond is Bond.OTHER_STATE
    assert replace(folders, output=other).look().bond is Bond.OTHER_OUTPUT
    assert replace(folders, state=other, partition=4).look().bond is Bond.NEW


def test_files_of_before_that_have_a_journal_are_tied_as_they_are(tmp_path: Path) -> None:
    folders = Folders(tmp_path / "out", tmp_path / "state", 0)
    folders.state.mkdir()
    (folders.state / "p0.journal").write_bytes(
        journal.sealed(journal.encode_start(2, 5) + journal.encode_end(9))[0]
    )

    seen = folders.look()
    folders.tie(3, 9)

    assert (seen.bond, seen.last) == (Bond.NEW, Batch(2, 5, 9, ()))
    assert folders.look() == replace(seen, bond=Bond.WHOLE)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"", "is empty", id="emptied"),
        pytest.param(b"junk\n", "unreadable", id="overwritten"),
        pytest.param(b'{"version":9,"epoch":1,"first":1}\n', "version 9", id="of a later program"),
    ],
)
def test_a_damaged_journal_is_told_by_name(folders: Folders, data: bytes, words: str) -> None:
    (folders.state / "p3.journal").write_bytes(data)

    damage = folders.look().damage

    assert str(folders.state / "p3.journal") in damage
    assert words in damage


@pytest.mark.parametrize("left", [b"", b"0123"], ids=["emptied", "cut"])
def test_a_damaged_mark_of_a_folder_is_told_by_name(folders: Folders, left: bytes) -> None:
    (folders.output / ".place").write_bytes(left)

    assert folders.look().damage == f"{folders.output / '.place'} is damaged: it is no mark"


@pytest.mark.parametrize("left", [b"0123", b"0" * 32], ids=["no mark", "another mark"])
@pytest.mark.parametrize(
    ("half", "bond"), [("state/p3.bond", Bond.OTHER_OUTPUT), ("out/.bonds/p3", Bond.OTHER_STATE)]
)
def test_a_damaged_half_is_made_good_by_the_other_and_a_changed_one_is_another(
    folders: Folders, half: str, bond: Bond, left: bytes
) -> None:
    path = folders.output.parent / half
    whole = path.read_bytes()
    path.write_bytes(left)

    seen = folders.look().bond

    assert seen is (Bond.WHOLE if left == b"0123" else bond)
    folders.tie(2, 9)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("left", [b"\x80", b"0123"])
def test_two_damaged_halves_prove_nothing(folders: Folders, left: bytes) -> None:
    for path in (folders.state / "p3.bond", folders.output / ".bonds" / "p3"):
        path.write_bytes(left)

    assert folders.look().bond is Bond.OTHER_OUTPUT
