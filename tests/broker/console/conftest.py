"""A console as a real program, beside a real broker, and a real browser."""

import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import Browser, Error, Page, async_playwright, expect
from playwright.async_api import TimeoutError as PlaywrightTimeout

from tests.broker.inspect.conftest import publish  # noqa: F401 - a fixture of these tests, too
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, wait_until

StartConsole = Callable[..., str]
_STARTS = 30_000  # milliseconds, of a browser on a busy machine
_ATTEMPTS = 4
expect.set_options(timeout=_STARTS)


@pytest.fixture
def consoles() -> list[Process]:
    """Return the consoles that were started."""
    return []


@pytest.fixture
def start_console(processes: Processes, consoles: list[Process]) -> StartConsole:
    """Return a function that starts a console and returns its URL, without a slash at the end."""

    def start(server: str, *options: str | Path, port: int | None = None) -> str:
        port = port or free_port()
        console: Process = processes.start(
            f"console-{port}-{len(consoles)}",
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


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a browser for all tests here, and return where it is controlled."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("no Chromium is installed (apt install chromium)")
    folder = tmp_path_factory.mktemp("chromium")
    options = ["--headless", "--remote-debugging-port=0", f"--user-data-dir={folder}/profile"]
    options += ["--no-first-run", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    # no connections of the browser itself
    options += ["--disable-gpu", "--disable-sync", "--disable-component-update"]
    options += ["--disable-background-networking"]
    with Processes(folder) as programs:
        started = programs.start("chromium", [path, *options])
        address = lambda: re.search(r"listening on (ws://\S+)", started.read_log())  # noqa: E731
        wait_until("it can be controlled", lambda: address() is not None, 60, [started])
        found = address()
        assert found
        yield found[1]


@pytest.fixture
async def browser(chromium: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        # a browser that is about to open its first page may leave a connection without an answer
        for left in reversed(range(_ATTEMPTS)):
            try:
                browser = await playwright.chromium.connect_over_cdp(chromium, timeout=_STARTS)
                break
            except PlaywrightTimeout:
                if not left:
                    raise
        yield browser
        await browser.close()


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """Return a page whose errors fail the test."""
    context = await browser.new_context()
    page = await context.new_page()
    wrong: list[Error] = []
    page.on("pageerror", lambda error: wrong.append(error))
    yield page
    await context.close()
    assert not wrong
