"""The real program where it is not to listen: it asks the kernel for nothing, polls, and misses nothing."""

from pathlib import Path

import pytest

from tests.descriptors import held_by
from tests.shipper.conftest import arrives
from tests.shipper.logs import Ship, append

pytestmark = pytest.mark.nats


def test_what_is_written_and_renamed_is_shipped(logs_url: str, ship: Ship, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    shipper = ship(logs_url, "--file", log, "--no-watch", "--poll-every", "50ms")

    append(log, b"one\n")
    arrives(logs_url, b"one\n", shipper)
    append(log, b"two\n")
    arrives(logs_url, b"one\ntwo\n", shipper)
    log.rename(f"{log}.1")
    append(log, b"three\n")
    arrives(logs_url, b"one\ntwo\nthree\n", shipper)

    assert "anon_inode:inotify" not in held_by(shipper.pid)
