# ruff: noqa: F811 - fixtures that are imported
"""What a page asks the console to search for holds up no other page."""

import asyncio
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
ENOUGH = 5  # answers meanwhile; a page that is held up gives one
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


async def answers(web: aiohttp.ClientSession, url: str) -> AsyncIterator[None]:
    while True:
        async with web.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        yield
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("asked", SETS.values(), ids=SETS)
async def test_what_takes_long_to_compile_holds_up_no_other_page(
    asked: str, start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession
) -> None:
    url = start_console(logs_url)
    came = 0
    searching = asyncio.ensure_future(web.get(f"{url}/lines?{quote(asked, '=')}"))
    async for _ in answers(web, url):
        came += 1
        if searching.done():
            break
    (await searching).close()

    assert (await searching).status == 200
    assert came >= ENOUGH


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
