"""`logreceiver verify` as people run it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from broker.app.exits import Exit
from broker.topology import Topology
from tests.receiver.partition import Partition, ours

PROGRAM = str(Path(sys.executable).with_name("logreceiver"))
pytestmark = pytest.mark.nats


def verify(partition: Partition, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [PROGRAM, "verify", "--server", partition.url, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_received_files_are_well_until_somebody_damages_them_or_the_stream_is_another(
    logs_url: str, tmp_path: Path
) -> None:
    partition = Partition(logs_url, tmp_path)
    partition.publish(
        *(ours(f"web{n % 3}", "app.log", 10 * (n // 3), b"line %04d\n" % n) for n in range(60))
    )
    partition.claim()
    partition.receive()
    output = ("--output", str(partition.output), "--state-dir", str(partition.state))

    well = verify(partition, *output)
    path = partition.output / "web1.log"
    path.write_bytes(path.read_bytes().replace(b"line 0013\n", b"", 1))
    damaged = verify(partition, *output, "--json")

    assert (well.returncode, well.stdout) == (
        0,
        "all well: 3 hosts, 600 B compared\nnot compared, as nothing was received here yet: partitions 1\n",
    ), well.stderr
    assert damaged.returncode == Exit.FAILED
    told = json.loads(damaged.stdout)
    assert (told["well"], told["hosts"], told["unclaimed"]) == (False, 3, [1])
    assert told["files"] == [
        {
            **{"partition": 0, "host": "web1", "live": "web1.log"},
            **{"expected": 20, "received": 19, "difference": "web1.log at byte 48"},
        }
    ]
    made = Topology(partitions=2).streams()[0]
    partition.ask(lambda connection: connection.api("STREAM.DELETE.LOGS"))
    partition.ask(lambda connection: connection.api("STREAM.CREATE.LOGS", made))
    of_another = verify(partition, *output)
    assert (of_another.returncode, of_another.stdout) == (Exit.CONFIGURATION, "")
    assert "nothing to compare" in of_another.stderr
