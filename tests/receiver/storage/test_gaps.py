"""Gaps on disk: each is told once in the output folder, whatever dies in between, and summed for ever."""

import fcntl
import json
import os
from pathlib import Path

import pytest

from receiver.storage import gaps
from receiver.storage.gaps import Gap, Missing
from receiver.storage.store import Store

SINCE, NOON = "2023-11-14T22:13:19.000+00:00", "2023-11-14T22:13:20.000+00:00"


def gap(host: str, start: int, end: int, sequence: int = 1) -> Gap:
    return Gap("gap", host, "/var/log/a", "id", start, end, sequence, 0, SINCE, NOON)


class Book:
    """A store whose gaps are told for partition 3."""

    def __init__(self) -> None:
        self.store = Store.in_memory()

    def save(self, found: list[Gap]) -> None:
        with self.store.transaction():
            gaps.put(self.store, found, 1)

    def tell(self, output: Path) -> None:
        gaps.tell(self.store, output, 3)

    def forget_that_they_were_told(self) -> None:
        with self.store.transaction():
            self.store.change("UPDATE gaps SET told = 0")

    @property
    def missing(self) -> dict[str, Missing]:
        return gaps.missing(self.store)


def told(output: Path) -> list[tuple[str, int, int]]:
    lines = (output / gaps.GAPS).read_text("ascii").splitlines()
    return [(entry["host"], entry["start"], entry["end"]) for entry in map(json.loads, lines)]


@pytest.fixture
def book() -> Book:
    return Book()


def test_a_gap_is_told_with_host_file_bytes_and_times(tmp_path: Path, book: Book) -> None:
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


def test_every_gap_is_told_once_and_counted_once(tmp_path: Path, book: Book) -> None:
    for number in range(4):
        book.save([gap("web01", number, number + 1, number), gap("db", number, number + 5, number)])
        book.tell(tmp_path)
        book.tell(tmp_path)

    assert len(told(tmp_path)) == len(set(told(tmp_path))) == 8
    assert book.missing == {"web01": Missing(4, 4), "db": Missing(4, 20)}


@pytest.mark.parametrize("torn", [0, 1, 40, 10_000])
def test_what_was_told_before_a_death_is_not_told_again_and_what_was_torn_is_told_whole(
    tmp_path: Path, book: Book, torn: int
) -> None:
    book.save([gap("web01", 1, 2), gap("web01", 3, 4)])
    book.tell(tmp_path)
    book.forget_that_they_were_told()
    whole = (tmp_path / gaps.GAPS).read_bytes()
    (tmp_path / gaps.GAPS).write_bytes(whole[: max(len(whole) - torn, 0)])

    book.tell(tmp_path)

    assert (tmp_path / gaps.GAPS).read_bytes() == whole


def test_a_person_may_rotate_or_empty_the_file_and_counts_stay(tmp_path: Path, book: Book) -> None:
    book.save([gap("web01", 1, 2)])
    book.tell(tmp_path)
    (tmp_path / gaps.GAPS).rename(tmp_path / "old")
    book.save([gap("web01", 3, 4)])
    book.tell(tmp_path)
    os.truncate(tmp_path / gaps.GAPS, 0)
    book.save([gap("web01", 5, 6)])
    book.tell(tmp_path)

    assert told(tmp_path) == [("web01", 5, 6)]
    assert book.missing == {"web01": Missing(3, 3)}


def test_no_gaps_leave_no_file(tmp_path: Path, book: Book) -> None:
    book.tell(tmp_path)

    assert not (tmp_path / gaps.GAPS).exists()


def test_gaps_are_never_told_through_a_symbolic_link(tmp_path: Path, book: Book) -> None:
    (tmp_path / gaps.GAPS).symlink_to(tmp_path / "victim")
    book.save([gap("web01", 1, 2)])

    with pytest.raises(OSError, match="symbolic link"):
        book.tell(tmp_path)
    assert not (tmp_path / "victim").exists()


def test_a_reader_that_locks_the_report_holds_up_nobody(tmp_path: Path, book: Book) -> None:
    book.save([gap("web01", 10, 25)])
    (tmp_path / gaps.GAPS).touch()
    with (tmp_path / gaps.GAPS).open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        book.tell(tmp_path)
        assert reader.read() == b""

    book.tell(tmp_path)

    assert (tmp_path / gaps.GAPS).read_text("ascii").count("web01") == 1
