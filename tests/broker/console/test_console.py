"""The console as a web server: who is admitted, what it sends, what a client cannot do to it."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from bench.cpu import peak_bytes_of
from broker.cli import group
from nats_logship.app.exits import ConfigurationError
from nats_logship.client.connection import Connection
from nats_logship.wire.offset import Offset
from nats_logship.wire.positions import Positions
from tests import secured
from tests.broker.console.conftest import StartConsole
from tests.broker.inspect.conftest import Publish, message
from tests.support.processes import Process, Processes

pytestmark = pytest.mark.nats
TOKEN = "a token of a test"


def refused(*options: str | Path) -> tuple[int, str]:
    """Return the exit code and the output of a console that does not start."""
    ended = CliRunner().invoke(group, ["console", *map(str, options)])
    assert isinstance(ended.exception, (SystemExit, ConfigurationError))
    is_configuration = isinstance(ended.exception, ConfigurationError)
    return 78 if is_configuration else ended.exit_code, f"{ended.output}{ended.exception}"


async def documents(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.content:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


@pytest.mark.parametrize(
    ("option", "value", "code", "text"),
    [
        ("--listen", "0.0.0.0:0", 78, "--token-file"),  # without a token or a certificate
        ("--token-file", "short", 78, "at least 16 bytes"),
        ("--token-file", "absent", 78, "No such file"),
        ("--listen-key", "short", 2, "--listen-cert"),
        ("--listen-cert", "short", 78, "certificate"),
        ("--listen", "127.0.0.1:{port}", 78, "cannot listen on"),
    ],
)
def test_it_does_not_start_without_protection_or_with_unusable_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: str, code: int, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short").write_text("short")

    with socket.create_server(("127.0.0.1", 0)) as taken:
        found, output = refused(option, value.format(port=taken.getsockname()[1]))

    assert (found, text in output) == (code, True)


async def test_it_answers_only_to_its_own_name_and_page_and_forbids_frames(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession
) -> None:
    url = start_console(logs_url)
    for path in ("/", "/hosts", "/absent", "/console.js"):
        async with web.get(url + path) as answer:
            assert answer.status == (404 if path == "/absent" else 200)
            assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert "Access-Control-Allow-Origin" not in answer.headers

    strange = [{"Host": name} for name in ("logs.attacker.example", "127.0.0.1.attacker.example")]
    for headers in (*strange, {"Sec-Fetch-Site": "cross-site"}):
        async with web.get(f"{url}/hosts", headers=headers) as answer:
            assert answer.status == 403
    async with web.post(f"{url}/hosts") as answer:
        assert answer.status == 405


async def test_without_the_token_nothing_is_shown(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    url = start_console(logs_url, "--token-file", tmp_path / "token")

    for path in ("/", "/events", "/hosts", "/host?host=a", "/lines", "/console.js"):
        async with web.get(url + path) as answer:
            assert answer.status == 401
    async with web.post(f"{url}/login", data={"token": TOKEN[:-1]}) as answer:
        assert answer.status == 401
    async with web.get(f"{url}/hosts", headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
        assert (answer.status, await answer.json()) == (200, [])
    async with web.post(f"{url}/login", data={"token": TOKEN}) as answer:
        assert (answer.status, answer.url.path) == (200, "/")
    async with web.get(f"{url}/hosts") as answer:
        assert answer.status == 200


async def test_the_overview_counts_arriving_lines(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession, publish: Publish
) -> None:
    url = start_console(logs_url)
    async with web.get(f"{url}/events") as answer:
        views = documents(answer)
        assert "history" in await anext(views)
        await anext(views)
        await publish("web01", b"a\nb\n")
        async for view in views:
            if view["point"]["lines"]:
                break

    assert view["partitions"]["0"]["lines"] == pytest.approx(view["point"]["lines"], abs=0.1)
    assert [one["partition"] for one in view["status"]["partitions"]] == [0, 1]
    assert view["active_hosts"] == 1


async def test_lines_have_their_origin_and_an_invalid_query_is_refused(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession, publish: Publish
) -> None:
    await publish("web01", b"first\nbad \xff byte\n", file="/var/log/a.log")
    await publish("db01", b"other\n")
    url = start_console(logs_url)
    async with web.get(f"{url}/lines?host=web*&last=5") as answer:
        found = documents(answer)
        pieces = [await anext(found) for _ in range(2)]
        await publish("web01", b"next\nand next\n")
        pieces += [await anext(found)]

    lines = [one["lines"] for one in pieces]
    assert lines == [["first"], ["bad \udcff byte"], ["next", "and next"]]
    piece = pieces[1]
    assert (piece["host"], piece["file"], piece["sequence"]) == ("web01", "/var/log/a.log", 1)
    wrong_last, wrong_match = ("-1", "100000", "x"), ("(", "%00", 501 * "x", "(((a{99}){9}){9}){9}")
    asked = [*(f"last={one}" for one in wrong_last), *(f"match={one}" for one in wrong_match)]
    for wrong in ("since=never", *asked):
        async with web.get(f"{url}/lines?{wrong}") as answer:
            assert (answer.status, "Traceback" in await answer.text()) == (400, False)


async def test_matching_lines_since_a_time_are_followed_by_new_ones(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession, publish: Publish
) -> None:
    for number in range(100):
        await publish("web01", f"line {number}\nother {number}\n".encode())
    url = start_console(logs_url)
    lines: list[str] = []
    async with web.get(f"{url}/lines?since=81&last=3&match=line%20.*9$") as answer:
        found = documents(answer)
        while len(lines) < 3:
            lines += (await anext(found))["lines"]
            if len(lines) == 2:
                await publish("web01", b"other\n" * 5000 + b"line of 9\nother\n")

    assert lines == ["line 89", "line 99", "line of 9"]  # sequence 81 has line 80
    async with web.get(f"{url}/lines?since=earliest&last=1&match=line%20.*9$") as answer:
        assert (await anext(documents(answer)))["lines"] == ["line of 9"]


async def test_of_too_many_lines_a_sample_is_shown_that_says_so(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession, publish: Publish
) -> None:
    await publish("web01", b"first\n")
    url = start_console(logs_url)
    begins = []
    async with web.get(f"{url}/lines") as answer:
        found = documents(answer)
        assert (await anext(found))["lines"] == ["first"]
        for _ in range(20):
            await publish("web01", b"a line of a flood\n" * 5000)
        while not (piece := await anext(found)).get("sampled"):
            begins.append((len(piece["lines"]), piece["more"]))
        coming = asyncio.ensure_future(anext(found))
        while not (await asyncio.wait({coming}, timeout=0.2))[0]:
            await publish("web01", b"now\n")  # the view goes on with new lines
        last = coming.result()

    assert begins == [(999, 4001)]  # the first line counts
    assert last["lines"] == ["now"]


async def test_clients_that_do_not_read_cost_little_memory(
    start_console: StartConsole, consoles: list[Process], logs_url: str, publish: Publish
) -> None:
    url = start_console(logs_url)
    port = int(url.rpartition(":")[2])
    lines = (b"x" * 1023 + b"\n") * 1000
    writers = []
    for path in ("/lines?since=earliest", "/events") * 10:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await reader.readexactly(1)
        writers.append(writer)
    for _ in range(100):
        await publish("web01", lines)

    peak = peak_bytes_of(consoles[0].pid)
    for writer in writers:
        writer.close()
    assert 0 < peak < 250_000 * 1024


async def test_a_monitor_s_rights_suffice_and_hosts_equal_those_of_the_command(
    start_console: StartConsole, web: aiohttp.ClientSession, processes: Processes, tmp_path: Path
) -> None:
    identities = secured.host("web01"), secured.monitor("watch")
    server = await asyncio.to_thread(secured.start_secured, processes, tmp_path, *identities)
    inside = Connection([server.url()], "test")
    await inside.ask("logs.p0.web01", *message(b"a line\n"))
    await inside.ask("logs.p1.db01", *message(b"b\n"))
    await inside.ask("$KV.LOGS_OFFSETS.p0", Offset(2, 1, "", "central").encode())
    await inside.ask("$KV.LOGS_POSITIONS.web01", Positions(version="9.1").encode())
    url = start_console(*server.options("watch")[1:])

    async with web.get(f"{url}/hosts") as answer:
        shown = await answer.json()
    assert [(one["files"], one["version"]) for one in shown] == [(None, ""), (0, "9.1")]
    async with web.get(f"{url}/host?host=web01") as answer:
        found = await answer.json()
    assert (found["files"], found["version"], found["gaps"][0]["partition"]) == ([], "9.1", 0)
    async with web.get(f"{url}/lines?host=web01") as answer:
        assert (await anext(documents(answer)))["lines"] == ["a line"]
    async with web.get(f"{url}/events") as answer:
        async for view in documents(answer):
            if "receivers" in view:
                break
    # the owner of the first has no address
    assert [one["running"] for one in view["receivers"].values()] == [None, False]
    assert "trouble" not in view or not view["trouble"]
    await inside.close()

    command = [sys.executable, "-m", "broker", "hosts", "--json", *server.options("watch")]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
    listed = json.loads(ended.stdout)
    assert all(one.pop("rate")["lines"] == 0 for one in shown)
    for one in (*shown, *listed):
        one.pop("silent_seconds")
        one.pop("behind_seconds")
    assert shown == listed
