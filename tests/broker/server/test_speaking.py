"""A broker answers for itself once, whatever became of its first attempts to be heard."""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bench.processes import wait_until
from broker.client.connection import Connection
from broker.report import SUBJECT
from broker.server.speaking import speaking
from tests.conftest import Server

pytestmark = pytest.mark.nats


async def test_a_server_that_is_slow_to_hear_it_gets_one_answer(own_server: Server) -> None:
    broker, asker = Connection([own_server.url], "broker"), Connection([own_server.url], "asker")
    asked = 0

    async def report() -> Mapping[str, Any]:
        nonlocal asked
        asked += 1
        return {"name": "b1"}

    await broker.once()
    os.kill(own_server.process.pid, signal.SIGSTOP)
    stat = Path(f"/proc/{own_server.process.pid}/stat")
    wait_until("it stands still", lambda: ") T " in stat.read_text("ascii"), 30)
    listening = speaking(broker, report)
    running = asyncio.create_task(listening.run())
    await asyncio.sleep(1)  # nobody can hear it meanwhile
    assert not listening.listens.is_set()

    os.kill(own_server.process.pid, signal.SIGCONT)
    async with asyncio.timeout(60):
        await listening.listens.wait()
    await asker.request(SUBJECT)
    await asker.request(SUBJECT)
    await asyncio.sleep(0.2)

    assert asked == 2
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await asker.close()
    await broker.close()
