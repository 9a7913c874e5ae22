"""A stream that nats-server cannot recover is not begun anew over what the disk still holds of it."""

from pathlib import Path

import pytest

from broker.wire.streams import POSITIONS_BUCKET, STREAM
from tests.broker.conftest import StartBroker, ask

pytestmark = pytest.mark.nats


def publish(url: str) -> int:
    info = ask(url, *[("logs.p0.web01", b"line\n")] * 3, f"STREAM.INFO.{STREAM}")
    return int(info["state"]["messages"])


def test_a_stream_that_was_being_made_when_all_was_killed_is_made_again(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    broker = start_broker(store=store)
    broker.wait_ready()
    assert broker.end() == 0
    # as a kill between the two files of a description leaves it
    half = store / "jetstream" / "LOGS" / "streams" / f"KV_{POSITIONS_BUCKET}"
    (half / "meta.sum").rename(half / "meta.sum.tmp")
    (half / "msgs" / "index.db").unlink()

    for count in (3, 6):
        again = start_broker(store=store)
        assert publish(again.wait_ready()["server"]) == count
        assert again.end() == 0


def test_a_stream_whose_description_is_damaged_stays_as_it_is_until_it_is_mended(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    broker = start_broker(store=store)
    assert publish(broker.wait_ready()["server"]) == 3
    assert broker.end() == 0
    meta = store / "jetstream" / "LOGS" / "streams" / STREAM / "meta.inf"
    whole = meta.read_bytes()
    meta.write_bytes(b"{" + b"\0" * (len(whole) - 1))

    refused = start_broker(store=store)
    assert refused.popen.wait(60) == 1
    assert f"could not recover {STREAM}" in refused.said

    meta.write_bytes(whole)
    again = start_broker(store=store)
    assert publish(again.wait_ready()["server"]) == 6
    assert again.end() == 0
