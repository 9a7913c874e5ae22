"""Gaps on disk: each is told once in the output folder, whatever dies in between, and summed for ever."""

import fcntl
import json
import os
from pathlib import Path

import pytest

from receiver.writing import gaps
from receiver.writing.gaps import DamagedGaps, GapBook, Missing, cut, missing
from receiver.writing.spans import Finding, Kind

NOON = 1_700_000_000_000_000_000


def gap(host: str, start: int, end: int, sequence: int = 1) -> Finding:
    return Finding(Kind.GAP, host, "/var/log/a", "id", start, end, sequence, NOON, NOON - 10**9)


def told(output: Path) -> list[tuple[str, int, int]]:
    lines = (output / gaps.GAPS).read_text("ascii").splitlines()
    return [(entry["host"], entry["start"], entry["end"]) for entry in map(json.loads, lines)]


@pytest.fixture
def book(tmp_path: Path) -> GapBook:
    return GapBook(tmp_path / "p3.gaps", 3)


def test_a_gap_is_told_with_host_file_bytes_and_times(tmp_path: Path, book: GapBook) -> None:
    book.save([gap("web01", 10, 25)])
    book.tell(tmp_path)

    assert json.loads((tmp_path / gaps.GAPS).read_text("ascii")) == {
        "kind": "gap",
        "host": "web01",
        "file": "/var/log/a",
        "file_id": "id",
        "start": 10,
        "end": 25,
        "sequence": 1,
        "since": "2023-11-14T22:13:19.000+00:00",
        "partition": 3,
        "bytes": 15,
        "until": "2023-11-14T22:13:20.000+00:00",
    }


def test_many_gaps_that_are_told_as_one_count_as_many(tmp_path: Path, book: GapBook) -> None:
    several = gap("evil", 1, 3).plus(gap("evil", 5, 9)).plus(gap("evil", 4, 5))
    book.save([gap("evil", 0, 1), several])
    before = missing(tmp_path / "p3.gaps")
    book.tell(tmp_path)

    last = json.loads((tmp_path / gaps.GAPS).read_text("ascii").splitlines()[-1])
    assert (last["host"], last["file"], last["gaps"], last["bytes"]) == ("evil", "", 3, 7)
    assert before == missing(tmp_path / "p3.gaps") == {"evil": Missing(4, 8)}


def test_every_gap_is_told_once_and_counted_once(tmp_path: Path, book: GapBook) -> None:
    for number in range(4):
        book.save([gap("web01", number, number + 1, number), gap("db", number, number + 5, number)])
        book.tell(tmp_path)
        book.tell(tmp_path)

    assert len(told(tmp_path)) == len(set(told(tmp_path))) == 8
    assert missing(tmp_path / "p3.gaps") == {"web01": Missing(4, 4), "db": Missing(4, 20)}


@pytest.mark.parametrize("torn", [0, 1, 40, 10_000])
def test_what_was_told_before_a_death_is_not_told_again_and_what_was_torn_is_told_whole(
    tmp_path: Path, book: GapBook, torn: int
) -> None:
    book.save([gap("web01", 1, 2), gap("web01", 3, 4)])
    before = (tmp_path / "p3.gaps").read_bytes()
    book.tell(tmp_path)
    (tmp_path / "p3.gaps").write_bytes(before)
    whole = (tmp_path / gaps.GAPS).read_bytes()
    (tmp_path / gaps.GAPS).write_bytes(whole[: max(len(whole) - torn, 0)])

    book.tell(tmp_path)

    assert (tmp_path / gaps.GAPS).read_bytes() == whole


def test_a_person_may_rotate_or_empty_the_file_and_counts_stay(
    tmp_path: Path, book: GapBook
) -> None:
    book.save([gap("web01", 1, 2)])
    book.tell(tmp_path)
    (tmp_path / gaps.GAPS).rename(tmp_path / "old")
    book.save([gap("web01", 3, 4)])
    book.tell(tmp_path)
    os.truncate(tmp_path / gaps.GAPS, 0)
    book.save([gap("web01", 5, 6)])
    book.tell(tmp_path)

    assert told(tmp_path) == [("web01", 5, 6)]
    assert missing(tmp_path / "p3.gaps") == {"web01": Missing(3, 3)}


def test_an_undone_batch_has_no_gaps(tmp_path: Path, book: GapBook) -> None:
    book.save([gap("web01", 1, 2)])
    image = book.image()
    book.save([gap("web01", 3, 4)])
    cut(tmp_path / "p3.gaps", image)
    book.tell(tmp_path)

    assert told(tmp_path) == [("web01", 1, 2)]


def test_no_gaps_leave_no_file_and_a_damaged_one_is_named(tmp_path: Path, book: GapBook) -> None:
    book.tell(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "p3.gaps").write_bytes(b"rubbish\n")

    with pytest.raises(DamagedGaps, match=r"p3\.gaps is damaged"):
        book.tell(tmp_path)


def test_gaps_are_never_told_through_a_symbolic_link(tmp_path: Path, book: GapBook) -> None:
    (tmp_path / gaps.GAPS).symlink_to(tmp_path / "victim")
    book.save([gap("web01", 1, 2)])

    with pytest.raises(OSError, match="symbolic link"):
        book.tell(tmp_path)
    assert not (tmp_path / "victim").exists()


def test_a_batch_whose_gaps_were_told_is_not_undone_by_guess(tmp_path: Path, book: GapBook) -> None:
    book.save([gap("web01", 1, 2)])
    book.tell(tmp_path)
    image = book.image()
    book.save([gap("web01", 3, 4)])
    book.tell(tmp_path)
    before = (tmp_path / "p3.gaps").read_bytes()

    with pytest.raises(DamagedGaps, match="written anew"):
        cut(tmp_path / "p3.gaps", image)
    assert (tmp_path / "p3.gaps").read_bytes() == before
    (tmp_path / "p3.gaps").unlink()
    cut(tmp_path / "p3.gaps", image)
    assert not (tmp_path / "p3.gaps").exists()


def test_a_bit_that_changed_in_what_is_still_to_be_told_is_not_told(
    tmp_path: Path, book: GapBook
) -> None:
    book.save([gap("web01", 10, 25)])
    path = tmp_path / "p3.gaps"
    written = path.read_bytes()

    for bit in range(
        8 * (len(written) - 1)
    ):  # without its end a line was being written by who died
        changed = bytearray(written)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(DamagedGaps, match=r"p3\.gaps is damaged.*remove it"):
            book.tell(tmp_path)


def test_a_reader_that_locks_the_report_holds_up_nobody(tmp_path: Path, book: GapBook) -> None:
    book.save([gap("web01", 10, 25)])
    (tmp_path / gaps.GAPS).touch()
    with (tmp_path / gaps.GAPS).open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        book.tell(tmp_path)
        assert reader.read() == b""

    book.tell(tmp_path)

    assert (tmp_path / gaps.GAPS).read_text("ascii").count("web01") == 1
