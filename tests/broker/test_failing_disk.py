"""A disk that takes no write any more while the broker starts: the broker ends with 1, so that it is started again."""

from pathlib import Path

import pytest

from tests.broker.conftest import Mounted, StartBroker

pytestmark = pytest.mark.nats

READ_ONLY = "mount --bind '{0}' '{0}' && mount -o remount,ro,bind '{0}'"


def test_a_write_that_fails_ends_the_start_with_1_and_the_next_start_does_it(
    start_broker: StartBroker, mounted: Mounted, tmp_path: Path
) -> None:
    first = start_broker("--max-bytes=5MB")
    first.wait_ready()
    first.end()
    # nats-server brings back no stream that is read-only as a whole, so only the next write fails
    path = tmp_path / "store/jetstream/LOGS/streams/LOGS/meta.inf.tmp"
    path.touch()

    failed = start_broker("--max-bytes=6MB", within=mounted(READ_ONLY.format(path)))
    code = failed.popen.wait(60)

    assert code == 1, failed.said
    assert "failed to update stream LOGS" in failed.said.splitlines()[-1]
    assert "read-only" in failed.said
    start_broker("--max-bytes=6MB").wait_ready()
