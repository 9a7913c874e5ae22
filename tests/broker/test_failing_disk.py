"""A disk that takes no write any more while the broker starts: the broker ends with 1, so that it is started again."""

from pathlib import Path

import pytest

from tests.broker.conftest import Mounted, StartBroker

pytestmark = pytest.mark.nats

READ_ONLY = "mount --bind '{0}' '{0}' && mount -o remount,ro,bind '{0}'"
FULL = "mount -t tmpfs -o nr_inodes=1 tmpfs '{0}'"


@pytest.mark.parametrize(
    ("mounts", "place", "option", "step", "reason"),
    [
        # nats-server brings back no stream that is read-only as a whole, so only the next write fails
        (READ_ONLY, "meta.inf.tmp", "--max-bytes=6MB", "update stream LOGS", "read-only"),
        (READ_ONLY, "obs", "--partitions=3", "create consumer receiver-p2", "read-only"),
        (FULL, "obs", "--partitions=2", "create consumer receiver-p", "no space left"),
    ],
    ids=["read-only stream", "read-only consumers", "full"],
)
def test_a_write_that_fails_ends_the_start_with_1_and_the_next_start_does_it(
    start_broker: StartBroker,
    mounted: Mounted,
    tmp_path: Path,
    mounts: str,
    place: str,
    option: str,
    step: str,
    reason: str,
) -> None:
    first = start_broker("--partitions=2", "--max-bytes=5MB")
    first.wait_ready()
    first.end()
    path = tmp_path / "store/jetstream/LOGS/streams/LOGS" / place
    if not path.exists():
        path.touch()
    settings = ("--partitions=2", "--max-bytes=5MB", option)

    failed = start_broker(*settings, within=mounted(mounts.format(path)))
    code = failed.popen.wait(60)

    assert code == 1, failed.said
    assert f"failed to {step}" in failed.said.splitlines()[-1]
    assert reason in failed.said
    start_broker(*settings).wait_ready()
