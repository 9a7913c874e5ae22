"""What lies in the output folder is summed up by live file, and what never came by host."""

import os
from pathlib import Path

from receiver.telling.hosts import HostFile, HostGaps, files_in, gaps_in
from receiver.writing.gaps import GapBook
from receiver.writing.spans import Finding, Kind

SECOND = 1_000_000_000
NOON = 1_800_000_000 * SECOND


def write(path: Path, content: bytes, moment: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, ns=(moment, moment))


def test_a_host_has_its_live_file_and_its_closed_ones(tmp_path: Path) -> None:
    write(tmp_path / "web01.log.000001.zst", b"12345", NOON - SECOND)
    write(tmp_path / "web01.log.000002", b"1234567890", NOON)
    write(tmp_path / "web01.log", b"", NOON + SECOND)
    write(tmp_path / "db" / "var" / "a.log", b"123", NOON)
    write(tmp_path / ".owners" / "web01", b"0", NOON)

    assert files_in(tmp_path) == [
        HostFile("db/var/a.log", "2027-01-15T08:00:00Z", 3, 0),
        HostFile("web01.log", "2027-01-15T08:00:00Z", 15, 2),
    ]


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert files_in(tmp_path / "none") == []
    assert gaps_in(tmp_path / "none") == []


def test_gaps_are_summed_over_partitions_and_a_damaged_book_says_nothing(tmp_path: Path) -> None:
    gap = Finding(Kind.GAP, "web01", "/a.log", "f1", 10, 30, 5, NOON)
    for partition in (0, 1):
        GapBook(tmp_path / f"p{partition}.gaps", partition).save([gap, gap])
    (tmp_path / "p2.gaps").write_bytes(b"none of ours\n")

    assert gaps_in(tmp_path) == [HostGaps("web01", 4, 80)]
