"""How a status reads, and what it says of the stores of a state folder."""

import os
import tempfile
from pathlib import Path

import pytest

from receiver.meter import Blockade
from receiver.status.status import HostFile, ReceivedPartition, Status
from tests.receiver.stored import add, begun

NOON = 1_800_000_000_000_000_000
OWNED = ReceivedPartition(
    partition=0,
    next=120,
    epoch=3,
    owner="central1:7",
    running=True,
    lines=1_234_567,
    size=99_000_000,
    committed_at="2026-11-21T10:00:01Z",
    behind=40,
    behind_seconds=3725.4,
    lines_per_second=5000.0,
    blocked=Blockade(
        cause="disk",
        detail="web01.log: No space left on device",
        since="2026-11-21T10:00:02Z",
    ),
)
WEB01 = HostFile(path="web01.log", last_line="2026-11-21T10:00:00Z", size=3 * 1024**2, segments=4)
STATUS = Status(
    partitions=[OWNED, ReceivedPartition(partition=1)],
    state_dir=Path("/out"),
    files=[WEB01],
)


def test_a_host_has_its_live_file_and_its_closed_ones_and_a_damaged_store_says_nothing(
    tmp_path: Path,
) -> None:
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
                found = Status.with_stores([], state).files
            finally:
                os.seteuid(0)

    assert [file.path for file in found] == ["web01.log"]


def test_people_see_a_table_and_what_is_blocked_since_when_and_why() -> None:
    lines = STATUS.as_text(with_hosts=True).splitlines()

    assert lines[1].split() == [
        *("0", "120", "40", "1h2m5s", "1,234,567", "99,000,000", "5,000"),
        *("3", "yes", "central1:7", "2026-11-21T10:00:01Z"),
    ]
    assert lines[2].split() == ["1", "0", "0", "0s", "0", "0", "0", "no", "nobody", "yet", "never"]
    assert (
        "partition 0 is blocked since 2026-11-21T10:00:02Z, disk: web01.log: No space left on device"
        in lines
    )
    assert "stores in /out: 1 live files, 4 closed, 3.0 MiB" in lines
    assert "web01.log  2026-11-21T10:00:00Z" in STATUS.as_text(with_hosts=True)
    assert "2026-11-21T10:00:00Z" not in STATUS.as_text()
