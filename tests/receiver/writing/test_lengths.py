"""What is remembered of live files is a hint: damaged, it is forgotten, and never tells of hands that were not there."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from receiver.writing.journal import PreImage
from receiver.writing.known import Known
from receiver.writing.lengths import Lengths

LEFT = Known(inode=12, length=3456, number=7)


def saved(path: Path) -> bytes:
    with Lengths(path) as lengths:
        lengths.note("web01.log", LEFT)
    return path.read_bytes()


def test_what_was_left_is_known_by_the_next(tmp_path: Path) -> None:
    saved(tmp_path / "p0.lengths")

    lengths = Lengths(tmp_path / "p0.lengths")

    assert lengths.number("web01.log") == 7
    assert lengths.is_as_left("web01.log", LEFT) is False  # until the file is touched
    assert "is gone" in (lengths.difference("web01.log", None) or "")


def test_a_bit_that_changed_has_all_forgotten_and_nothing_told(tmp_path: Path) -> None:
    path = tmp_path / "p0.lengths"
    whole = saved(path)

    for place in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            with path.open(
                "r+b"
            ) as file:  # the same inode, or what it says of others would not count
                file.write(changed)
            lengths = Lengths(path)
            assert lengths.number("web01.log") in (0, 7), (place, bit)
            assert lengths.difference("web01.log", LEFT) is None, (place, bit)


IMAGE = PreImage("web01.log", LEFT.length, LEFT.number, inode=LEFT.inode)
GROWN = replace(LEFT, length=4000)


def left(path: Path, *batches: Known) -> Lengths:
    """Write batches as a process does that dies then."""
    lengths = Lengths(path)
    for known in batches:
        lengths.difference("web01.log", known)
        lengths.note("web01.log", known)
        lengths.keep()
    return lengths


def told(path: Path) -> str:
    return Lengths(path).difference("web01.log", None) or ""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "p0.lengths"


def test_what_every_batch_left_is_known_though_its_process_died(path: Path) -> None:
    left(path, LEFT, GROWN)

    assert "of which 4000 bytes" in told(path)


def test_what_an_undone_batch_left_before_its_process_died_is_forgotten(path: Path) -> None:
    left(path, LEFT, GROWN)
    Lengths(path).undo([IMAGE], gone=())

    assert "of which 3456 bytes" in told(path)


def test_what_the_batch_before_an_undone_one_left_is_known(path: Path) -> None:
    left(path, LEFT).difference("web01.log", LEFT)  # the next one, which dies before it is done
    Lengths(path).undo([IMAGE], gone=())

    assert "of which 3456 bytes" in told(path)
    assert Lengths(path).is_as_left("web01.log", LEFT)


def test_what_was_found_by_a_batch_is_found_again_when_it_is_undone(path: Path) -> None:
    cut = replace(LEFT, length=5)
    lengths = left(path, LEFT)
    lengths.difference("web01.log", cut)
    lengths.note("web01.log", cut)  # closed as it is
    lengths.undo([replace(IMAGE, length=5)], gone=())

    assert "cut to 5 bytes" in (Lengths(path).difference("web01.log", cut) or "")


def test_what_is_gone_and_told_is_told_once_and_its_number_is_not_given_again(path: Path) -> None:
    left(path, LEFT)
    Lengths(path).undo([IMAGE], gone=["web01.log"])

    assert told(path) == ""
    assert Lengths(path).number("web01.log") == LEFT.number + 1, "it may have been closed first"


def test_a_torn_end_is_of_a_batch_that_does_not_count(path: Path) -> None:
    left(path, LEFT, GROWN)
    path.write_bytes(path.read_bytes()[:-3])
    assert "of which 3456 bytes" in told(path)

    left(path, LEFT, GROWN)

    assert "of which 4000 bytes" in told(path)


def test_a_damaged_batch_has_all_but_numbers_forgotten(path: Path) -> None:
    left(path, LEFT, GROWN)
    with path.open("r+b") as file:
        file.write(path.read_bytes().replace(b"4000", b"4001"))

    assert told(path) == ""
    assert Lengths(path).number("web01.log") == LEFT.number


def test_a_file_that_others_removed_or_changed_is_written_anew(path: Path) -> None:
    lengths = left(path, LEFT)
    for hand in (Path.unlink, lambda path: os.truncate(path, 10)):
        hand(path)
        lengths.note("web01.log", GROWN)
        lengths.keep()

        assert "of which 4000 bytes" in told(path)


def test_a_file_does_not_grow_with_the_batches(path: Path) -> None:
    left(path, *(replace(LEFT, length=number) for number in range(1, 2000)))

    assert path.stat().st_size < 100_000
    assert "of which 1999 bytes" in told(path)


@contextmanager
def no_room() -> Iterator[None]:
    """Have nothing written anew meanwhile."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("receiver.writing.lengths.replacing", refused)
        yield


def test_where_lengths_cannot_be_written_numbers_are_kept_and_no_length_is_believed(
    path: Path,
) -> None:
    left(path, LEFT, GROWN)
    lengths = Lengths(path)
    with no_room():
        lengths.undo([replace(IMAGE, length=4000)], gone=())

    found = Lengths(path)
    assert found.number("web01.log") == LEFT.number
    assert found.difference("web01.log", replace(LEFT, length=5)) is None

    with found:
        found.note("web02.log", LEFT)
    assert list(path.parent.iterdir()) == [path]
    assert Lengths(path).number("web01.log") == LEFT.number


def test_a_batch_that_gives_a_number_fails_where_it_cannot_be_kept(path: Path) -> None:
    lengths = left(path, LEFT)
    path.unlink()
    with no_room():
        lengths.note("web01.log", GROWN)
        lengths.keep()
        lengths.note("web01.log", replace(LEFT, number=8))
        with pytest.raises(OSError) as failed:  # noqa: PT011 - its file is what counts
            lengths.keep()

    assert failed.value.filename == str(path)
    lengths.note("web01.log", replace(LEFT, number=8))
    lengths.keep()
    assert Lengths(path).number("web01.log") == 8


def test_a_pipe_in_its_place_is_waited_for_never_and_replaced(path: Path) -> None:
    lengths = left(path, LEFT)
    path.unlink()
    os.mkfifo(path)
    lengths.note("web01.log", GROWN)
    lengths.keep()

    assert "of which 4000 bytes" in told(path)
