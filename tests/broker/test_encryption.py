"""A store that is encrypted, on a real nats-server: nothing readable in it, and never opened as if it were empty."""

from pathlib import Path
from typing import Any

import pytest

from tests.broker.conftest import ask

pytestmark = pytest.mark.nats

LINES = [("logs.p0.web01", b"x" * 500)] * 20


def messages(url: str, *work: Any) -> int:
    """Return how many messages the stream holds, after some work."""
    return int(ask(url, *work, "STREAM.INFO.LOGS")["state"]["messages"])


@pytest.fixture
def key(tmp_path: Path) -> str:
    file = tmp_path / "key"
    file.write_text('with "quotes" { $HOME } # and more\n', "utf-8")
    return str(file)


def holds(store: Path, text: bytes) -> bool:
    files = [path for path in (store / "jetstream").rglob("*") if path.is_file()]
    return any(text in path.read_bytes() for path in files)


def test_no_line_can_be_read_in_an_encrypted_store_and_all_are_there_again(
    start_broker: Any, key: str
) -> None:
    options = ("--encryption-key-file", key)
    broker = start_broker(*options)
    assert messages(broker.wait_ready()["server"], *LINES) == 20
    broker.end(9)

    assert not holds(broker.store, b"x" * 100)
    assert not holds(broker.store, b"logs.>")
    conf = broker.store / "nats-server.conf"
    assert "quotes" not in conf.read_text("utf-8")
    assert conf.stat().st_mode & 0o777 == 0o600

    again = start_broker(*options)
    assert messages(again.wait_ready()["server"]) == 20


def test_an_encrypted_store_is_refused_without_its_key_and_left_as_it_is(
    start_broker: Any, key: str, tmp_path: Path
) -> None:
    broker = start_broker("--encryption-key-file", key)
    assert messages(broker.wait_ready()["server"], *LINES) == 20
    broker.end()
    other = tmp_path / "other"
    other.write_text("another key, long enough", "utf-8")

    without = start_broker()
    assert without.popen.wait(120) == 78
    wrong = start_broker("--encryption-key-file", str(other))
    assert wrong.popen.wait(120) == 78

    assert "is not encrypted in place" in without.said
    assert "encrypted with another key" in wrong.said
    right = start_broker("--encryption-key-file", key)
    assert messages(right.wait_ready()["server"]) == 20
