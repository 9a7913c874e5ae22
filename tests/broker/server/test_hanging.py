"""A nats-server that answers nobody any more, as it was seen to after a reload on a full disk: it is started again."""

import asyncio
import json
import logging
import os
import signal
from pathlib import Path

import pytest

from bench.processes import wait_until
from broker.server import healing
from broker.server.service import Service
from broker.settings import BrokerSettings
from tests.broker.test_logbroker_run import ask

pytestmark = pytest.mark.nats


async def test_a_server_that_hangs_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(healing, "_HANGS", 3.0)
    monkeypatch.setattr(healing, "_PATIENCE", 1.0)
    settings = BrokerSettings(store_dir=tmp_path, listen="127.0.0.1:0", http="", max_store=10**8)
    service = Service(settings, tmp_path, ())
    async with asyncio.timeout(120):
        running = asyncio.ensure_future(service.run())
        hanging = await server_of(tmp_path, other_than=0)

        with caplog.at_level(logging.ERROR):
            os.kill(hanging, signal.SIGSTOP)
            fresh = await server_of(tmp_path, other_than=hanging)

        answer = await asyncio.to_thread(ask, told(tmp_path)["server"], "STREAM.INFO.LOGS")
        running.cancel()
        await asyncio.wait({running})

    assert answer["config"]["name"] == "LOGS"
    assert "has not answered for 3 s: starting it again" in caplog.text
    for pid in (hanging, fresh):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def told(store: Path) -> dict[str, str]:
    ready: dict[str, str] = json.loads((store / "broker.json").read_text("utf-8"))
    return ready


async def server_of(store: Path, other_than: int) -> int:
    """Wait until another server is ready, and return its process id."""

    def is_there() -> bool:
        ready = (store / "broker.json").exists()
        return ready and int(told(store)["nats_server_pid"]) != other_than

    await asyncio.to_thread(wait_until, "a server is ready", is_there, 30)
    return int(told(store)["nats_server_pid"])
