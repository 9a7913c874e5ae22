# ruff: noqa: F811 - fixtures that are imported
"""What a page asks the console to search for holds up no other page."""

import asyncio
import time
from collections.abc import AsyncIterator
from urllib.parse import quote

import aiohttp
import pytest

from tests.broker.console.conftest import (  # noqa: F401 - fixtures of ours as well
    StartConsole,
    consoles,
    start_console,
    web,
)
from tests.broker.inspect.conftest import Publish, publish  # noqa: F401 - a fixture of ours as well

pytestmark = pytest.mark.nats
SOON = 0.5  # seconds
RANGES = "".join(f"{chr(0x100 + n)}-\uffff" for n in range(149))
"""So many different letters that Python takes a second to compile the set."""
SETS = {"an expression": f"match=(?i)[{RANGES}]", "a glob": f"host=[{RANGES}]"}
REFUSED = {
    "no expression": "match=(",
    "one with a zero byte": "match=\0",
    "one that is too long": f"match={501 * 'x'}",
    "one with too long a repetition": "match=x{1001}",
    "globs that are too long": f"host={' '.join(500 * ['[a-z]*'])}",
}


async def answers(web: aiohttp.ClientSession, url: str) -> AsyncIterator[float]:
    """Ask for another page again and again; yield in how many seconds each answer came."""
    while True:
        began = time.monotonic()
        async with web.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        yield time.monotonic() - began
        await asyncio.sleep(0.01)


async def longest_answer(web: aiohttp.ClientSession, url: str, asked: str) -> float:
    """Return in how many seconds another page was answered at the latest during a search."""
    searching, longest = asyncio.ensure_future(web.get(f"{url}/lines?{quote(asked, '=')}")), 0.0
    async for seconds in answers(web, url):
        longest = max(longest, seconds)
        if searching.done():
            break
    async with await searching as answer:
        assert answer.status == 200
    return longest


@pytest.mark.parametrize("asked", SETS.values(), ids=SETS)
async def test_what_takes_long_to_compile_holds_up_no_other_page(
    asked: str, start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession
) -> None:
    url = start_console(logs_url)
    # each expression is another one; on a busy machine one answer may be late for other reasons
    took = [await longest_answer(web, url, asked + number * "x") for number in range(5)]
    assert min(took) < SOON


async def test_globs_of_many_stars_hold_up_no_other_page(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession, publish: Publish
) -> None:
    await publish("a" * 200, b"a line\n")
    await publish("b", b"last\n")
    url = start_console(logs_url)
    async with asyncio.timeout(60):  # a backtracking comparison would take years
        async with web.get(f"{url}/lines?host={'*a' * 100}*x%20b") as answer:
            found = asyncio.ensure_future(answer.content.readuntil(b'"last"'))
            async for _ in answers(web, url):
                if found.done():
                    break


async def test_what_cannot_be_searched_for_is_refused_by_name(
    start_console: StartConsole,
    logs_url: str,
    web: aiohttp.ClientSession,
    subtests: pytest.Subtests,
) -> None:
    url = start_console(logs_url)
    for name, asked in REFUSED.items():
        with subtests.test(name):
            async with web.get(f"{url}/lines?{quote(asked, '=')}") as answer:
                said = await answer.text()
            assert answer.status == 400
            assert "expression" in said or "globs" in said
            assert "Traceback" not in said
