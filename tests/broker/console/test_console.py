"""The console as a web server: who is admitted, what it sends, what a client cannot do to it."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
from asyncio import timeout
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from click.testing import CliRunner

from bench.cpu import peak_bytes_of
from broker.cli import group
from broker.console.lines import LineFinder
from broker.console.request import LineRequest
from broker.inspect.old_lines import TableSearch, ask
from broker.inspect.ranges import read_states
from broker.inspect.windows import WindowFound
from broker.topology import Topology
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.timestamps import to_nanoseconds
from nats_logship.client.connection import Connection
from nats_logship.client.find import find_message
from nats_logship.client.line_search import LineFilter
from nats_logship.history import Order
from nats_logship.wire.offset import Offset
from nats_logship.wire.positions import Positions
from tests import secured
from tests.broker.console.conftest import StartConsole
from tests.broker.inspect.conftest import Publish, message, publish_piece
from tests.conftest import Server, apply_topology
from tests.nats_logship.test_history import BEGAN, SECOND, Written
from tests.receiver.partition import publish as publish_raw
from tests.support.processes import Process, Processes

pytestmark = pytest.mark.nats
TOKEN = "a token of a test"

Store = Callable[[Iterable[str], range], Awaitable[str]]


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
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}
    for path, dest, status in (
        ("/", "document", 200),
        ("/", "iframe", 403),
        ("/hosts", "document", 403),
    ):
        async with web.get(url + path, headers=link | {"Sec-Fetch-Dest": dest}) as answer:
            assert answer.status == status
    async with web.post(f"{url}/hosts") as answer:
        assert answer.status == 405


async def test_without_the_token_nothing_is_shown(
    start_console: StartConsole,
    consoles: list[Process],
    logs_url: str,
    web: aiohttp.ClientSession,
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    url = start_console(logs_url, "--token-file", tmp_path / "token")

    for path in ("/", "/events", "/hosts", "/host?host=a", "/lines", "/console.js"):
        async with web.get(url + path) as answer:
            assert answer.status == 401
    async with web.post(url, data={"token": TOKEN[:-1]}) as answer:
        assert (answer.status, "not the token" in await answer.text()) == (401, True)
    async with web.get(f"{url}/hosts", headers={"Authorization": f"Bearer {TOKEN}x"}) as answer:
        assert answer.status == 401
    assert consoles[0].read_log().count("wrong token from 127.0.0.1") == 2
    async with web.get(f"{url}/hosts", headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
        assert (answer.status, await answer.json()) == (200, [])
    async with web.post(f"{url}/hosts", data={"token": TOKEN}) as answer:
        assert answer.status == 405
    async with web.post(url, data={"token": TOKEN}, allow_redirects=False) as answer:
        # relative, as a proxy may have the console below a path
        assert (answer.status, answer.headers["Location"]) == (303, "./")
    async with web.get(f"{url}/hosts") as answer:
        assert answer.status == 200


async def test_a_browser_is_logged_in_to_two_consoles_and_after_a_restart(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession, tmp_path: Path
) -> None:
    urls = []
    for token in (TOKEN, TOKEN[::-1]):
        (tmp_path / token).write_text(token)
        urls.append(start_console(logs_url, "--token-file", tmp_path / token))
        async with web.post(urls[-1], data={"token": token}) as answer:
            assert answer.status == 200
    urls.append(start_console(logs_url, "--token-file", tmp_path / TOKEN))

    for url in urls:  # cookies ignore ports
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


async def lines_of(views: AsyncIterator[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return so many lines of a search, the oldest first."""
    found: list[dict[str, Any]] = []
    while len(found) < most:
        document = await anext(views)
        assert "trouble" not in document
        found = [*document.get("older", []), *found, *document.get("lines", [])]
    return found


async def search(web: aiohttp.ClientSession, address: str) -> tuple[list[str], dict[str, Any]]:
    """Return the texts of the lines of a search that ends, and all other fields of its answer."""
    texts: list[str] = []
    last: dict[str, Any] = {"counts": []}
    async with web.get(address) as answer:
        async for one in documents(answer):
            last |= one | {"counts": [*last["counts"], *one.get("counts", [])]}
            older = [line["text"] for line in one.get("older", [])]
            texts = [*older, *texts, *(line["text"] for line in one.get("lines", []))]
            if one.get("ended"):
                break
    return texts, last


async def test_a_page_that_connects_again_gets_each_new_line_once(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession, publish: Publish
) -> None:
    await publish("web01", b"old\n")
    url = start_console(logs_url)
    texts: list[str] = []
    after: dict[str, str] = {}
    for number in range(3):
        await publish("web01", f"{number}\n".encode())
        async with web.get(f"{url}/lines?after={after.get('last', '')}") as answer:
            async for event in answer.content:
                if event.startswith(b"id: "):
                    after = {"last": quote(event.decode()[4:].strip())}
                elif event.startswith(b"data: "):
                    found = json.loads(event[6:])
                    texts += [one["text"] for one in found.get("older", found.get("lines", []))]
                elif after and str(number) in texts:
                    break

    assert texts == ["old", "0", "1", "2"]
    async with web.get(f"{url}/lines?after=x") as answer:
        assert (await anext(documents(answer)))["final"]
    async with web.get(f"{url}/lines?host=nobody") as answer:
        views = documents(answer)
        while not (await anext(views)).get("searched"):
            pass
        for _ in range(2):  # so no proxy takes the connection for idle
            assert (await anext(views))["lines"] == []


async def test_a_position_that_is_none_is_refused(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession, connection: Connection
) -> None:
    url = start_console(logs_url)
    key = (await read_states(connection))[0].key
    for position in ("foo", "::", f"{key}:-5", f"{key}:{10**30}", f"{key}:٣"):
        async with web.get(f"{url}/lines", params={"after": position}) as answer, timeout(20):
            view = await anext(documents(answer))
        assert (view.get("trouble"), view.get("final")) == (f"{position!r} is no position", True)


async def test_lines_have_their_origin_and_an_invalid_query_is_refused(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession, publish: Publish
) -> None:
    await publish("web01", b"first\nbad \xff byte\n", file="/var/log/a.log")
    await publish("db01", b"other\n")
    url = start_console(logs_url)
    async with web.get(f"{url}/lines?host=web*&count=5") as answer:
        views = documents(answer)
        found = await lines_of(views, 2)
        while not (await anext(views)).get("searched"):
            pass
        await publish("web01", b"next\n<11>and next\n")
        found += await lines_of(views, 2)

    assert [one["text"] for one in found] == ["first", "bad \udcff byte", "next", "<11>and next"]
    assert [one["level"] for one in found] == ["", "", "", "error"]
    assert (found[1]["host"], found[1]["file"]) == ("web01", "/var/log/a.log")
    assert found[1]["key"].endswith(":1:1")
    wrong_match = ("(", "%00", 501 * "x", "(((a{99}){9}){9}){9}")
    asked = [
        *(f"count={one}" for one in ("-1", "100000", "x")),
        *(f"match={one}" for one in wrong_match),
        *(
            "since=1h&until=2h",
            "since=7&until=7",
            "since=never",
            "until=x",
            "since=14:03&zone=../etc/passwd",
            "since=0001-01-01&until=0001-01-02&zone=Asia/Tokyo",
            "level=bad",
            "order=none",
            "buckets=1e9",
        ),
    ]
    for wrong in asked:
        async with web.get(f"{url}/lines?{wrong}") as answer:
            assert (answer.status, "Traceback" in await answer.text()) == (400, False), wrong
    for wrong in ("", "x:1:2", f"LOGS/{'9' * 500}:1:1", "LOGS/x:1:-1", "LOGS/x:9:9"):
        async with web.get(f"{url}/around?line={wrong}") as answer:
            assert (answer.status, "Traceback" in await answer.text()) == (400, False), wrong


async def test_a_time_in_a_zone_that_the_machine_lacks_and_a_sequence_to_come_are_refused(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession, publish: Publish
) -> None:
    await publish("web01", b"a line\n")
    url = start_console(logs_url)

    async with web.get(f"{url}/lines?since=14:03&zone=Asia/Unknown") as answer:
        assert (answer.status, "choose UTC" in await answer.text()) == (400, True)
    for asked, text in (
        ("since=20261129&until=now", "since: sequence 20261129 is beyond the end"),
        ("since=2199-01-01", "since is in the future"),
        ("until=earliest", "until is before since"),
    ):
        async with web.get(f"{url}/lines?{asked}") as answer:
            trouble = (await anext(documents(answer)))["trouble"]
        assert trouble.startswith(text)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("order=first&count=2", ["line 0", "ERROR 0"]),
        ("order=last&count=3&until=now", ["ERROR 28", "line 29", "ERROR 29"]),
        ("order=first&since=6&count=1", ["line 5"]),
        ("order=first&since=6&count=1&buckets=20&until=2199-01-01", ["line 5"]),
        ("since=6&until=8", ["line 5", "ERROR 5", "line 6", "ERROR 6"]),
        ("until=3&file=db.*", ["line 1", "ERROR 1"]),
        ("until=4&file=*/log/app.log", ["line 0", "ERROR 0", "line 2", "ERROR 2"]),
        ("until=now&match=[12]7$&level=warning", ["ERROR 17", "ERROR 27"]),
        ("until=now&match=9$&count=2", ["line 29", "ERROR 29"]),
        ("until=3&host=nobody", []),
        ("until=20261129&count=1", ["ERROR 29"]),
        ("since=0001-01-01&until=9999-12-31&buckets=500&count=1", ["ERROR 29"]),
        ("zone=Asia/Unknown&since=1h&until=2200-01-01T00:00%2B01:00&count=1", ["ERROR 29"]),
    ],
)
async def test_a_search_finds_the_first_or_last_lines_of_a_range(
    start_console: StartConsole,
    logs_url: str,
    web: aiohttp.ClientSession,
    publish: Publish,
    asked: str,
    found: list[str],
) -> None:
    for number in range(30):
        file = f"/var/log/{'db' if number % 2 else 'app'}.log"
        await publish("web01", f"line {number}\nERROR {number}\n".encode(), file=file)
    url = start_console(logs_url)

    assert (await search(web, f"{url}/lines?{asked}"))[0] == found


async def test_all_lines_of_a_range_are_counted_by_time_and_severity(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession, publish: Publish
) -> None:
    for _ in range(200):
        await publish("web01", b"ERROR x\nlevel=warn y\nINFO z\nplain\n" * 10)
    url = start_console(logs_url)

    found, last = await search(web, f"{url}/lines?until=now&count=5&buckets=100&since=1h")
    sums = [sum(n for _, severity, n in last["counts"] if severity == one) for one in range(3)]
    assert (len(found), sums) == (5, [4000, 2000, 2000])
    begin, end, step = (last["range"][name] for name in ("from", "to", "step"))
    assert 40 <= (end - begin) / step <= 101
    assert {(time - begin) % step for time, _, _ in last["counts"]} == {0}
    assert last["progress"]["read"] == last["progress"]["of"] > 0


async def test_the_lines_around_a_line_are_those_of_its_host_and_file(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession, publish: Publish
) -> None:
    url = start_console(logs_url)
    for number in range(40):
        more = (("/var/log/[b]*.log", f"b{2 * number}\nb{2 * number + 1}\n".encode()),)
        await publish("web01", b"of another file\n", more=more)
        await publish("web02", b"of another host\n", file="/var/log/[b]*.log")
    async with web.get(f"{url}/lines?order=first&match=b41$&host=web01") as answer:
        line = (await lines_of(documents(answer), 1))[0]

    async with web.get(f"{url}/around", params={"line": line["key"], "lines": 30}) as answer:
        around = await answer.json()
    assert [one["text"] for one in around["lines"]] == [f"b{n}" for n in range(11, 72)]
    assert around["lines"][around["chosen"]] == line


async def test_the_lines_around_a_line_are_found_in_all_streams_of_its_host(
    start_console: StartConsole, fresh_url: str, web: aiohttp.ClientSession
) -> None:
    await asyncio.to_thread(apply_topology, fresh_url, Topology(partitions=2, stream_count=2))
    texts = [f"line {number}" for number in range(9)]
    for number, text in enumerate(texts):  # the host moves
        await asyncio.to_thread(
            publish_raw, fresh_url, (f"logs.p{number // 3 % 2}.web01", text.encode(), None)
        )
    url = start_console(fresh_url)
    async with web.get(f"{url}/lines?order=first") as answer:
        lines = await lines_of(documents(answer), 9)
    for number, line in enumerate(lines):
        async with web.get(f"{url}/around", params={"line": line["key"], "lines": 5}) as answer:
            around = await answer.json()
        shown = [one["text"] for one in around["lines"]]
        assert shown == texts[max(0, number - 5) : number + 6]
        assert around["lines"][around["chosen"]] == line


@pytest.fixture
def store(connection: Connection, publish: Publish, tmp_path: Path) -> Store:
    """Return a function that stores lines of web01, and those of some sequences also in a table.

    It returns the address of the table.
    """

    async def store_lines(texts: Iterable[str], sequences: range) -> str:
        written = Written(tmp_path / "table", first=sequences.start)
        written.stream = f"LOGS/{(await connection.api('STREAM.INFO.LOGS'))['created']}"
        for line in (f"{text}\n".encode() for text in texts):
            sequence = await publish("web01", line)
            stored = await find_message(connection, "LOGS", {"seq": sequence})
            if stored and sequence in sequences:
                seconds = Fraction(stored.stored_at - BEGAN, SECOND)
                written.add(("web01", "/var/log/app.log", seconds, line))
        return written.address

    return store_lines


async def test_lines_that_the_stream_has_no_more_come_from_the_table(
    start_console: StartConsole,
    logs_url: str,
    connection: Connection,
    web: aiohttp.ClientSession,
    store: Store,
) -> None:
    texts = [f"web01 {number}" for number in range(10)]
    table = await store(texts, range(1, 9))
    await connection.api("STREAM.PURGE.LOGS", {"seq": 6})
    url = start_console(logs_url, "--table", table)

    for asked, wanted in (
        ("count=100", texts),
        ("count=3", texts[7:]),
        ("count=3&order=first", texts[:3]),
        ("match=web01 [2-8]", texts[2:9]),
    ):
        found, last = await search(web, f"{url}/lines?until=now&buckets=50&{asked}")
        assert found == wanted
    assert sum(number for _, _, number in last["counts"]) == 7
    for asked in ("since=3&order=first", "until=4"):
        async with web.get(f"{url}/lines?{asked}") as answer:
            trouble = (await anext(documents(answer)))["trouble"]
        assert trouble.endswith("is no longer in the stream: give a time")
    async with web.get(f"{url}/lines?match=[49]$&order=first") as answer:
        keys = [one["key"] for one in await lines_of(documents(answer), 2)]
    for key, chosen in zip(keys, (4, 9), strict=True):
        async with web.get(f"{url}/around", params={"line": key}) as answer:
            around = await answer.json()
        assert [one["text"] for one in around["lines"]] == texts
        assert around["chosen"] == chosen


async def test_lines_of_streams_that_the_table_has_unequally_come_in_the_order_of_time(
    start_console: StartConsole, fresh_url: str, web: aiohttp.ClientSession, tmp_path: Path
) -> None:
    await asyncio.to_thread(apply_topology, fresh_url, Topology(partitions=2, stream_count=2))
    written = Written(tmp_path / "table")
    texts = [f"line {number}" for number in range(12)]
    connection = Connection([fresh_url], "tests")
    try:
        streams = await read_states(connection)
        for number, text in enumerate(texts):
            side = number % 2
            what = f"logs.p{side}.web01", *message(f"{text}\n".encode())
            answer = await connection.ask(*what)
            stored = await find_message(connection, answer["stream"], {"seq": answer["seq"]})
            assert stored
            if number < (10, 3)[side]:  # the table lags behind in the second stream
                state = next(one for one in streams if one.name == answer["stream"])
                written.stream, written.next = state.key, answer["seq"]
                seconds = Fraction(stored.stored_at - BEGAN, SECOND)
                written.add(("web01", "/var/log/app.log", seconds, f"{text}\n".encode()))
    finally:
        await connection.close()
    url = start_console(fresh_url, "--table", written.address)

    for most in (1, 2, 3, 5, 9, 12):
        for order, wanted in (("last", texts[-most:]), ("first", texts[:most])):
            for buckets in (0, 50):
                asked = f"until=now&count={most}&order={order}&buckets={buckets}"
                found, last = await search(web, f"{url}/lines?{asked}")
                assert (asked, found) == (asked, wanted)
                assert not buckets or sum(number for _, _, number in last["counts"]) == 12


async def test_lines_of_streams_are_shown_though_those_of_the_table_since_them_cannot_be_read(
    connection: Connection, publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Iterator[WindowFound]:
        yield WindowFound()
        raise OperatorError("files of the table are gone")

    monkeypatch.setattr(TableSearch, "find_between", fail)
    written = Written(tmp_path / "table")
    await publish("web01", b"line 0\n")
    now = Fraction(to_nanoseconds(datetime.now(UTC)) - BEGAN, SECOND)  # noqa: TID251
    written.add(("web02", "/var/log/app.log", now + 5, b"line 1\n"))  # of a stream of its own
    request = LineRequest(LineFilter(), None, None, Order.NEWEST, most=100, buckets=0)
    shown = []
    with pytest.raises(OperatorError, match="are gone"):  # noqa: PT012
        async for document in LineFinder(connection, written.address).search(request):
            shown += [one["text"] for one in document.get("older", ())]
    assert shown == ["line 0"]


async def test_a_line_that_reaches_the_table_while_a_page_waits_for_it_is_shown_once(
    connection: Connection, publish: Publish, tmp_path: Path
) -> None:
    written = Written(tmp_path / "table")
    written.stream = f"LOGS/{(await connection.api('STREAM.INFO.LOGS'))['created']}"
    now = Fraction(to_nanoseconds(datetime.now(UTC)) - BEGAN, SECOND)  # noqa: TID251
    await publish("web01", b"line 0\n")
    written.add(("web01", "/var/log/app.log", now, b"line 0\n"))
    request = LineRequest(LineFilter(), None, None, Order.NEWEST, most=100, buckets=0)
    found = LineFinder(connection, written.address).search(request)
    is_over = threading.Event()
    other = asyncio.ensure_future(ask(is_over.wait, 30))  # another page searches a table
    first = asyncio.ensure_future(anext(found))
    await asyncio.sleep(0.3)
    await publish("web01", b"line 1\n")
    ahead = now + 5  # the broker's clock may be ahead of ours
    written.add(("web01", "/var/log/app.log", ahead, b"line 1\n"))
    is_over.set()
    await other
    texts: list[str] = []
    async with aclosing(found):
        await first
        await publish("web01", b"line 2\n")
        while "line 2" not in texts:
            document = await anext(found)
            lines = [*document.get("older", []), *document.get("lines", [])]
            texts += [one["text"] for one in lines]

    assert texts == ["line 0", "line 1", "line 2"]


async def test_lines_are_found_although_all_are_newer_than_our_clock_says(
    connection: Connection, tmp_path: Path
) -> None:
    written = Written(tmp_path / "table")
    now = Fraction(to_nanoseconds(datetime.now(UTC)) - BEGAN, SECOND)  # noqa: TID251
    written.add(("web01", "a", now + 5, b"line 0\n"), ("web01", "a", now + 6, b"line 1\n"))
    request = LineRequest(LineFilter(), None, None, Order.NEWEST, most=100, buckets=20)

    texts, counted = list[str](), 0
    async with aclosing(LineFinder(connection, written.address).search(request)) as found:
        while not (document := await anext(found)).get("searched"):
            texts += [one["text"] for one in document.get("older", [])]
            counted += sum(number for _, _, number in document.get("counts", []))
    assert (texts, counted) == (["line 0", "line 1"], 2)


async def test_who_does_not_read_keeps_no_other_search_of_a_table_waiting(
    start_console: StartConsole,
    logs_url: str,
    web: aiohttp.ClientSession,
    publish: Publish,
    tmp_path: Path,
) -> None:
    for _ in range(20):
        await publish("web01", (b"x" * 10_000 + b"\n") * 50)
    written = Written(tmp_path / "table")
    written.add(("web01", "/var/log/app.log", Fraction(1), b"an old line\n"))
    url = start_console(logs_url, "--table", written.address)
    port = int(url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    writer.write(b"GET /lines?count=1000&until=now HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readexactly(1)
    await asyncio.sleep(1.0)  # it has found more than its client takes

    async with asyncio.timeout(10):
        found, _ = await search(web, f"{url}/lines?count=1&until=now&order=first")
    assert found == ["an old line"]
    writer.close()


async def test_while_the_broker_is_away_hosts_are_refused_and_no_rate_is_made_up(
    start_console: StartConsole, web: aiohttp.ClientSession, own_server: Server
) -> None:
    await asyncio.to_thread(apply_topology, own_server.url, Topology(partitions=1))
    url = start_console(own_server.url)
    async with web.get(f"{url}/events") as answer:
        views = documents(answer)
        while "point" not in (last := await anext(views)):
            pass
        await asyncio.to_thread(own_server.stop)
        while not (view := await anext(views)).get("trouble"):
            last = view
        for path in ("hosts", "host?host=web01"):
            async with web.get(f"{url}/{path}") as refused:
                assert refused.status == 503
                assert (await refused.text()).startswith("the broker does not answer")
        assert view["point"] == last["point"]
    async with web.get(f"{url}/events") as answer:
        assert (await anext(documents(answer)))["history"][-1] == last["point"]


async def test_what_the_stream_has_from_before_the_table_began_is_found(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession, store: Store
) -> None:
    texts = [f"web01 {number}" for number in range(1, 10)]
    url = start_console(logs_url, "--table", await store(texts, range(4, 8)))

    for asked, wanted in (("count=100", texts), ("count=2&order=first", texts[:2])):
        found, last = await search(web, f"{url}/lines?until=now&buckets=50&{asked}")
        assert found == wanted
        assert sum(number for _, _, number in last["counts"]) == 9
        assert last["progress"]["read"] == last["progress"]["of"]


async def test_a_table_that_cannot_be_read_is_named_and_the_stream_is_searched(
    start_console: StartConsole,
    logs_url: str,
    web: aiohttp.ClientSession,
    publish: Publish,
    tmp_path: Path,
) -> None:
    await publish("web01", b"a line\n")
    url = start_console(logs_url, "--table", tmp_path / "absent")

    found, last = await search(web, f"{url}/lines?until=now")
    assert found == ["a line"]
    assert "only the stream is searched: there is no table in" in last["note"]


async def test_a_page_that_closes_ends_its_search(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession
) -> None:
    address = f"{start_console(logs_url)}/lines?host=nobody"  # nothing comes that it could send
    async with AsyncExitStack() as pages:
        for _ in range(20):
            answer = await pages.enter_async_context(web.get(address))
            assert "range" in await anext(documents(answer))
        async with web.get(address) as refused:
            assert (refused.status, await refused.text()) == (503, "too many pages are open\n")

    status = 503
    while status == 503:  # until the test's time is over
        async with web.get(address) as answer:
            status = answer.status
    assert status == 200


async def test_of_too_many_lines_a_sample_is_shown_that_says_so(
    start_console: StartConsole, logs_url: str, web: aiohttp.ClientSession, publish: Publish
) -> None:
    url = start_console(logs_url)
    shown = counted = 0
    async with web.get(f"{url}/lines") as answer:
        views = documents(answer)
        while not (await anext(views)).get("searched"):
            pass
        for _ in range(20):
            await publish("web01", b"a line of a flood\n" * 5000)
        one: dict[str, Any] = {}
        while not one.get("sampled"):
            one = await anext(views)
            shown += len(one["lines"])
            counted += sum(number for _, _, number in one["counts"])
        texts: set[str] = set()
        while "now" not in texts:  # the view goes on with new lines
            await publish("web01", b"now\n")
            texts = {line["text"] for line in (await anext(views)).get("lines", [])}

    assert shown == 1000 < counted


@pytest.mark.parametrize("order", ["first", "last"])
async def test_a_record_over_several_messages_is_one_line_of_a_page(
    start_console: StartConsole,
    logs_url: str,
    web: aiohttp.ClientSession,
    connection: Connection,
    publish: Publish,
    order: str,
) -> None:
    url = start_console(logs_url)
    await publish_piece(connection, b"1 a\n2 b\n", 0, "kept")
    await publish_piece(connection, b" at\n", 8, "kept")
    await publish_piece(connection, b" at\n3 c\n", 12)
    for _ in range(62):  # so the first search of the last lines begins inside of the record
        await publish("web02", b"other\n")

    found = "web01", ["1 a", "2 b\n at\n at", "3 c"]
    async with web.get(f"{url}/lines?order={order}&count=1000") as answer:
        lines = await lines_of(documents(answer), 65)
        assert [one["text"] for one in lines if one["host"] == "web01"] == found[1]
    key = next(one["key"] for one in lines if one["text"].startswith("2 b"))
    async with web.get(f"{url}/around", params={"line": key, "lines": 9}) as answer:
        around = await answer.json()
    assert ([one["text"] for one in around["lines"]], around["chosen"]) == (found[1], 1)


@pytest.mark.parametrize("order", ["first", "last"])
@pytest.mark.parametrize("between", [1, 30, 70, 200])
async def test_a_record_whose_rest_comes_much_later_is_shown_and_counted_once(
    start_console: StartConsole,
    logs_url: str,
    web: aiohttp.ClientSession,
    connection: Connection,
    publish: Publish,
    order: str,
    between: int,
) -> None:
    url = start_console(logs_url)
    for _ in range(100):
        await publish("web02", b"other\n")
    await publish_piece(connection, b"1 a\n2 b\n", 0, "kept")
    for _ in range(between):
        await publish("web02", b"other\n")
    await publish_piece(connection, b" at\n3 c\n", 8)
    for _ in range(62):  # so the first search of the last lines begins just before the rest
        await publish("web02", b"other\n")

    asked = f"order={order}&until=now&count=1000&buckets=50"
    for match, shown, parts in (
        ("^[^o]", ["1 a", "2 b\n at", "3 c"], ["1 a", "2 b", " at", "3 c"]),
        ("b|at", ["2 b\n at"], ["2 b", " at"]),
    ):
        found, last = await search(web, f"{url}/lines?{asked}&match={quote(match)}")
        assert [one.removesuffix(" … goes on in a later message") for one in found] in (
            shown,
            parts,
        )
        counted = sum(number for _, _, number in last["counts"])
        assert counted == sum(one.count("\n") + 1 for one in shown)


async def test_a_new_record_is_shown_whole_and_what_goes_on_says_so(
    start_console: StartConsole,
    logs_url: str,
    web: aiohttp.ClientSession,
    connection: Connection,
) -> None:
    url = start_console(logs_url)
    async with web.get(f"{url}/lines") as answer:
        views = documents(answer)
        while not (await anext(views)).get("searched"):
            pass
        await publish_piece(connection, b"1 a\n2 b\n", 0, "kept")
        assert [one["text"] for one in await lines_of(views, 1)] == ["1 a"]
        await publish_piece(connection, b" at\n3 c\n", 8, "kept")
        assert [one["text"] for one in await lines_of(views, 1)] == ["2 b\n at"]
    async with web.get(f"{url}/lines?order=first") as answer:
        last = (await lines_of(documents(answer), 3))[-1]
    assert last["text"] == "3 c … goes on in a later message"


async def test_long_lines_cost_a_search_little_memory(
    start_console: StartConsole,
    consoles: list[Process],
    logs_url: str,
    publish: Publish,
    web: aiohttp.ClientSession,
) -> None:
    for number in range(400):  # a page shows the first 16 KiB of each
        await publish("web01", f"{number:03} ".encode() + b"x" * 500_000 + b"\n")
    url = start_console(logs_url)

    async with web.get(f"{url}/lines?since=earliest&until=now&count=1000") as answer:
        texts = (await answer.text()).splitlines()
    views = [json.loads(one.removeprefix("data: ")) for one in texts if one.startswith("data: ")]
    found = [line for view in views for line in view.get("older", [])]
    assert len(found) == 400
    assert found[-1]["text"].endswith("x … and 483,620 bytes more")
    assert 0 < peak_bytes_of(consoles[0].pid) < 200_000 * 1024


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
    assert (found["files"], found["version"], found["partition"]) == ([], "9.1", 0)
    async with web.get(f"{url}/lines?host=web01") as answer:
        assert (await lines_of(documents(answer), 1))[0]["text"] == "a line"
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
    assert all(one.pop("rate")["lines"] == 0 and one.pop("state") == "sending" for one in shown)
    for one in (*shown, *listed):
        one.pop("silent_seconds")
        one.pop("behind_seconds")
    assert shown == listed
