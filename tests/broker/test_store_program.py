"""The store of `logbroker run`, encrypted, damaged or read-only: it is never created again."""

from pathlib import Path

import pytest

from nats_logship.wire.streams import POSITIONS_BUCKET, STREAM
from tests.broker.conftest import Broker, Mounted, StartBroker, ask

pytestmark = pytest.mark.nats

LINE = ("logs.p0.web01", b"x" * 500)
STREAMS = "jetstream/LOGS/streams"
READ_ONLY = "mount --bind '{0}' '{0}' && mount -o remount,ro,bind '{0}'"


def messages(broker: Broker, publish: int = 0) -> int:
    """Return how many messages the stream holds, after so many more were published."""
    info = ask(broker.ready()["server"], *[LINE] * publish, f"STREAM.INFO.{STREAM}")
    return int(info["state"]["messages"])


def holds(store: Path, text: bytes) -> bool:
    files = [path for path in (store / "jetstream").rglob("*") if path.is_file()]
    return any(text in path.read_bytes() for path in files)


def test_an_encrypted_store_shows_no_line_and_opens_with_its_key_alone(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    own, another = (("--encryption-key-file", str(tmp_path / name)) for name in ("own", "another"))
    (tmp_path / "own").write_text('with "quotes" { $HOME } # and more\n', "utf-8")
    (tmp_path / "another").write_text("another key, long enough", "utf-8")
    broker = start_broker(*own)
    assert messages(broker, publish=20) == 20
    broker.kill()

    assert not holds(broker.store, b"x" * 100)
    assert not holds(broker.store, b"logs.>")
    conf = broker.store / "nats-server.conf"
    assert "quotes" not in conf.read_text("utf-8")
    assert conf.stat().st_mode & 0o777 == 0o600

    again = start_broker(*own)
    assert messages(again) == 20
    again.stop(20)
    for options, reason in (((), "is encrypted: give its"), (another, "with another key")):
        refused = start_broker(*options)
        assert refused.wait(120) == 78
        assert reason in refused.read_log()
    assert messages(start_broker(*own)) == 20


def test_a_failed_write_ends_the_start_with_1_and_the_next_start_works(
    start_broker: StartBroker, mounted: Mounted, tmp_path: Path
) -> None:
    first = start_broker("--max-bytes=5MB")
    first.ready()
    first.stop(20)
    # nats-server brings back no stream that is read-only as a whole, so only the next write fails
    path = tmp_path / "store" / STREAMS / STREAM / "meta.inf.tmp"
    path.touch()

    failed = start_broker("--max-bytes=6MB", within=mounted(READ_ONLY.format(path)))
    code = failed.wait(60)

    assert code == 1, failed.read_log()
    assert "failed to update stream LOGS" in failed.read_log().splitlines()[-1]
    assert "read-only" in failed.read_log()
    start_broker("--max-bytes=6MB").ready()


def test_a_stream_that_a_kill_left_incomplete_is_created_again(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.ready()
    assert broker.stop(20) == 0
    # as a kill between the two files of a description leaves it
    half = broker.store / STREAMS / f"KV_{POSITIONS_BUCKET}"
    (half / "meta.sum").rename(half / "meta.sum.tmp")
    (half / "msgs" / "index.db").unlink()

    for count in (3, 6):
        again = start_broker()
        assert messages(again, publish=3) == count
        assert again.stop(20) == 0


def test_a_damaged_stream_is_kept_and_refused_until_it_is_repaired(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    assert messages(broker, publish=3) == 3
    assert broker.stop(20) == 0
    meta = broker.store / STREAMS / STREAM / "meta.inf"
    whole = meta.read_bytes()
    meta.write_bytes(b"{" + b"\0" * (len(whole) - 1))

    refused = start_broker()
    assert refused.wait(60) == 1
    assert f"could not recover {STREAM}" in refused.read_log()

    meta.write_bytes(whole)
    assert messages(start_broker(), publish=3) == 6
