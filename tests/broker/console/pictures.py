"""Take the pictures of the pages: `python -m tests.broker.console.pictures docs/console 60`.

Real programs ship what twelve hosts write in so many minutes: a broker, a receiver, shippers, and a
console with a table. It needs Chromium, and 50 minutes or more: a host is silent at the end.
"""

import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

from playwright.async_api import Page, ViewportSize, async_playwright, expect

from tests.broker.console.applications import FILES, write
from tests.support.ports import free_port
from tests.support.processes import Processes, installed
from tests.support.suite import Suite

_WITHOUT = """folder => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode())
    texts.currentNode.data = texts.currentNode.data.replaceAll(folder, "");
}"""
_SIZE: ViewportSize = {"width": 1200, "height": 720}


def run(pictures: Path, minutes: float) -> None:
    """Run all programs for some minutes, then take the pictures."""
    with tempfile.TemporaryDirectory() as place, Processes(Path(place)) as programs:
        folder = Path(place)
        suite, logs = Suite(folder / "suite", programs), folder / "var" / "log"
        suite.start_broker()
        suite.start_receiver([0, 1])
        table = folder / "table"
        server = ["--server", suite.url]
        suite.start_program("logreceiver", "table", ["table", "--table", table, *server])
        for host, files in FILES.items():
            paths = [logs / host / file for file, *_ in files]
            for path in paths:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            records = ["--record-start", "^[0-9]{4}-"] if host.startswith("worker") else []
            suite.start_shipper(host, paths, *records)
        address = f"127.0.0.1:{free_port()}"
        console = ["console", "--listen", address, "--table", str(table), *server]
        programs.start("console", [installed("logbroker"), *console])
        is_over = Event()
        writer = Thread(target=_write_all, args=(logs, 60 * minutes, is_over))
        writer.start()
        try:
            time.sleep(60 * minutes)
            asyncio.run(take(f"http://{address}/", pictures, folder))
        finally:
            is_over.set()
            writer.join()


def _write_all(logs: Path, seconds: float, is_over: Event) -> None:
    """Write what hosts say in so many seconds, and go on as at their end."""
    began = time.monotonic()
    seed = 0
    while not is_over.wait(1):
        seed += 1
        passed = min(1.0, (time.monotonic() - began) / seconds)
        for host, file, text in write(seed, passed, 1.0):
            with (logs / host / file).open("a") as written:
                written.write(text)


async def take(url: str, pictures: Path, folder: Path) -> None:
    """Take the pictures of a console that is served at `url`; paths are shown without `folder`."""

    async def show(name: str) -> None:
        await page.evaluate(_WITHOUT, str(folder))
        await page.screenshot(path=pictures / name)

    path = shutil.which("chromium") or shutil.which("google-chrome")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = await browser.new_page(viewport=_SIZE, timezone_id="UTC")
        page.set_default_timeout(60_000)
        await page.goto(url)
        await expect(page.locator("#partitions .good")).to_have_count(2, timeout=60_000)
        silent = page.locator("#cards .odd", has_text="silent")
        await expect(silent).to_be_visible(timeout=90_000)
        await page.locator("#chart-lines div").hover()
        await show("overview.png")
        await page.goto(f"{url}#hosts/db01")
        await expect(page.locator("#host .lines li")).to_have_count(10)
        await show("hosts.png")
        await page.goto(f"{url}#lines?host=db01&since=1h&count=1000")
        await _finish_search(page)
        middle = "one => one.scrollIntoView({block: 'center'})"
        await page.locator("#line-list .critical").first.evaluate(middle)
        await show("lines.png")
        await page.goto(f"{url}#lines?host=worker*&since=1h&level=error&order=first")
        await _finish_search(page)
        await page.locator("#line-list .error").nth(2).click()
        await expect(page.locator("#around-list [aria-current]")).to_be_in_viewport()
        await show("around.png")
        await browser.close()


async def _finish_search(page: Page) -> None:
    busy = page.locator("#lines")
    await expect(busy).to_have_attribute("aria-busy", "false", timeout=60_000)
    await expect(page.locator("#line-list li").first).to_be_visible()


if __name__ == "__main__":
    run(Path(sys.argv[1]), float(sys.argv[2]))
