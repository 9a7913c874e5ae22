"""How a status reads."""

import json
from pathlib import Path

from receiver.status.hosts import HostFile, HostGaps
from receiver.status.status import Blockade, PartitionStatus, Status
from receiver.status.tables import status_json, status_table

OWNED = PartitionStatus(
    *(0, 120, 3, "central1:7", True, 1_234_567, 99_000_000),
    *(
        "2026-11-21T10:00:00Z",
        "2026-11-21T10:00:01Z",
        100,
        160,
        40,
        8000,
        3725.4,
        5000.0,
        1e6,
        0.0123,
    ),
    blocked=Blockade("disk", "web01.log: No space left on device", "2026-11-21T10:00:02Z"),
)
FREE = PartitionStatus(1, 0, 0, "", False, 0, 0, "", "", 100, 160, 0, 0, 0.0)
STATUS = Status(
    [OWNED, FREE],
    Path("/out"),
    [HostFile("web01.log", "2026-11-21T10:00:00Z", 3 * 1024**2, 4)],
    [HostGaps("web01", 2, 4096)],
)


def test_people_see_a_table_and_what_is_blocked_since_when_and_why() -> None:
    lines = status_table(STATUS, with_hosts=True).splitlines()

    assert lines[1].split() == [
        *("0", "120", "40", "1h2m5s", "1,234,567", "99,000,000", "5,000", "12", "ms"),
        *("3", "yes", "central1:7", "2026-11-21T10:00:01Z"),
    ]
    assert lines[2].split() == ["1", "0", "0", "0s", "0", "0", "0", "no", "nobody", "yet", "never"]
    assert (
        "partition 0 is blocked since 2026-11-21T10:00:02Z, disk: web01.log: No space left on device"
        in lines
    )
    assert "stores in /out: 1 live files, 4 closed, 3.0 MiB" in lines
    assert lines[-1].split() == ["web01", "2", "4,096"]
    assert "web01.log  2026-11-21T10:00:00Z" in status_table(STATUS, with_hosts=True)
    assert "2026-11-21T10:00:00Z" not in status_table(STATUS, with_hosts=False)


def test_programs_get_raw_numbers() -> None:
    told = json.loads(status_json(STATUS))

    assert told["partitions"][0]["behind_seconds"] == 3725.4
    assert told["partitions"][0]["blocked"]["cause"] == "disk"
    assert told["partitions"][1]["blocked"] is None
    assert told["files"][0] == {
        "path": "web01.log",
        "last_line": "2026-11-21T10:00:00Z",
        "size": 3145728,
        "segments": 4,
    }
    assert told["gaps"] == [{"host": "web01", "gaps": 2, "size": 4096}]
