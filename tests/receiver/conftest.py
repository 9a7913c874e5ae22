"""What the receiver's tests share: a partition, and a scene."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.table.location import Location
from tests.receiver.faulty_disk import recorded_cuts
from tests.receiver.partition import Partition
from tests.receiver.scene import Scene
from tests.receiver.table.tabled import Tabled
from tests.support.ports import free_port
from tests.support.processes import Processes, installed, wait_until


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    """Return partition 0, claimed, of which nothing was received."""
    made = Partition(logs_url, tmp_path)
    made.claim()
    return made


@pytest.fixture
def cuts() -> Iterator[list[str]]:
    """Return the files that were truncated in this process."""
    with recorded_cuts() as found:
        yield found


@pytest.fixture
def scene(logs_url: str, processes: Processes, tmp_path: Path) -> Scene:
    return Scene(logs_url, processes, tmp_path)


@pytest.fixture
def tabled(logs_url: str, tmp_path: Path) -> Tabled:
    return Tabled(logs_url, Location(str(tmp_path / "table")))


@pytest.fixture
def s3(processes: Processes) -> Location:
    import boto3

    port = free_port()
    server = processes.start("s3", [installed("moto_server"), "-p", str(port)])
    wait_until("S3 is ready", lambda: "Running on" in server.read_log(), 60, [server])
    url = f"http://127.0.0.1:{port}"
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)
    client.create_bucket(Bucket="logs")
    client.close()
    options = {
        **{name.upper(): value for name, value in keys.items()},
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    return Location("s3://logs/table", tuple(options.items()))
