"""The status of the stores of a state folder."""

import os
import tempfile
from pathlib import Path

import pytest

from receiver.status.status import HostFile, Status
from tests.receiver.stored import add, begun

NOON = 1_800_000_000_000_000_000


def test_a_status_has_the_files_of_all_readable_stores(tmp_path: Path) -> None:
    names = {
        "web01.log.000001": b"12345",
        "web01.log.000002": b"1234567890",
        "web01.log": b"",
        "db.log": b"123",
    }
    for name, content in names.items():
        (tmp_path / name).write_bytes(content)
    add(tmp_path, tmp_path, *names, moment=NOON)
    (tmp_path / "p2.db").write_bytes(b"none of ours\n" * 500)

    assert list(Status.with_stores([], tmp_path).files) == [
        HostFile(path=path, last_line="2027-01-15T08:00:00Z", size=size, segments=segments)
        for path, size, segments in (("db.log", 3, 0), ("web01.log", 15, 2))
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is another user")
@pytest.mark.parametrize("is_running", [True, False])
def test_a_user_who_can_only_read_the_stores_sees_the_files(is_running: bool) -> None:
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
                found = Status.with_stores([], state).files
            finally:
                os.seteuid(0)

    assert [file.path for file in found] == ["web01.log"]
