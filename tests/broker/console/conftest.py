"""A console as a real program, beside a real broker."""

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest

from tests.broker.inspect.conftest import publish  # noqa: F401 - a fixture of these tests, too
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, wait_until

StartConsole = Callable[..., str]


@pytest.fixture
def consoles() -> list[Process]:
    """Return the consoles that were started."""
    return []


@pytest.fixture
def start_console(processes: Processes, consoles: list[Process]) -> StartConsole:
    """Return a function that starts a console and returns its URL, without a slash at the end."""

    def start(server: str, *options: str | Path) -> str:
        port = free_port()
        console: Process = processes.start(
            f"console-{port}",
            [
                *(sys.executable, "-m", "broker", "console", "--listen", f"127.0.0.1:{port}"),
                *("--server", server, *options),
            ],
        )
        consoles.append(console)
        wait_until("the console listens", lambda: "open http" in console.read_log(), 30, [console])
        return f"http://127.0.0.1:{port}"

    return start


@pytest.fixture
async def web() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session
