"""What the stores of a state folder say is summed up by live file, and what never came by host."""

import os
import tempfile
from pathlib import Path

import pytest

from receiver.status.hosts import HostFile, HostGaps, files_in, gaps_in
from receiver.storage.gaps import Gap, put
from tests.receiver.stored import add, begun

NOON = 1_800_000_000_000_000_000


def test_a_host_has_its_live_file_and_its_closed_ones(tmp_path: Path) -> None:
    names = {
        "web01.log.000001": b"12345",
        "web01.log.000002": b"1234567890",
        "web01.log": b"",
        "db.log": b"123",
    }
    for name, content in names.items():
        (tmp_path / name).write_bytes(content)
    add(tmp_path, tmp_path, *names, moment=NOON)

    assert files_in(tmp_path) == [
        HostFile("db.log", "2027-01-15T08:00:00Z", 3, 0),
        HostFile("web01.log", "2027-01-15T08:00:00Z", 15, 2),
    ]


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert files_in(tmp_path / "none") == []
    assert gaps_in(tmp_path / "none") == []


def test_gaps_are_summed_over_partitions_and_a_damaged_store_says_nothing(tmp_path: Path) -> None:
    gap = Gap("gap", "web01", "/a.log", "f1", 10, 30, 5, 0, None, None)
    for partition in (0, 1):
        with begun(tmp_path, tmp_path, partition) as store, store.transaction():
            put(store, [gap, gap], 1)
    (tmp_path / "p2.db").write_bytes(b"none of ours\n" * 500)

    assert gaps_in(tmp_path) == [HostGaps("web01", 4, 80)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is another user")
@pytest.mark.parametrize("is_running", [True, False])
def test_whoever_may_only_read_the_stores_has_the_files(is_running: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        (state / "web01.log").touch()
        add(state, state, "web01.log", moment=NOON)
        with begun(state, state) as store:
            if not is_running:
                store.close()
            for path in (state, *state.iterdir()):
                path.chmod(0o755 if path == state else 0o644)
            os.seteuid(65534)
            try:
                found = files_in(state)
            finally:
                os.seteuid(0)

    assert [file.path for file in found] == ["web01.log"]
