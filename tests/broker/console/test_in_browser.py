"""The console in a real browser: all views, thousands of hosts, hostile hosts and lines."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from broker.topology import Topology
from nats_logship.client.connection import Connection
from nats_logship.wire.message import Identity
from nats_logship.wire.positions import Cursor, Positions
from receiver.consume.claim import Claim
from receiver.driver.standby import wait_until_free
from receiver.meter import Meter
from tests.broker.console.conftest import StartConsole
from tests.broker.inspect.conftest import Publish, message
from tests.conftest import Server, apply_topology
from tests.support.processes import Processes, wait_until
from tests.support.received import received_bytes
from tests.support.suite import Suite

pytestmark = pytest.mark.nats
MARKUP = '<img/src=x/onerror="document.title=1">'
HOSTILE = f"{MARKUP} \x1b[31mred \u202eesrever".encode() + b" \0\xff\xfe end"


async def test_all_views_show_what_real_programs_do(
    browser: Browser, start_console: StartConsole, tmp_path: Path
) -> None:
    with Processes(tmp_path) as programs:
        suite = Suite(tmp_path / "suite", programs)
        await asyncio.to_thread(suite.start_broker)
        receiver = await asyncio.to_thread(suite.start_receiver, [0, 1])
        for host in ("web01", "db01.example.net", "mail01"):
            log = tmp_path / f"{host}.log"
            log.write_text("".join(f"{host} says line {n}\n" for n in range(500)))
            await asyncio.to_thread(suite.start_shipper, host, [log])
        await asyncio.to_thread(suite.wait_for_receiver, receiver, (0, 1))
        url = start_console(suite.url)
        page = await browser.new_page(viewport={"width": 1100, "height": 640})

        await page.goto(url)
        await expect(page.locator("#partitions .good")).to_have_count(2, timeout=30_000)
        # the claim precedes the start of Spark, which is slow
        await expect(page.locator("#cards")).to_contain_text("Messages behind0", timeout=90_000)
        await expect(page.locator("#streams")).to_contain_text("LOGS")
        waits = Connection([suite.url], "standby")
        claim, meter = Claim(waits, 0, "<b>central2", "LOGS"), Meter(lambda: 0).expect(0)
        standby = asyncio.create_task(wait_until_free(claim, meter, 3600))
        shown = page.locator("#partitions tr", has_text="p0").locator("td").last
        await expect(shown).to_contain_text(", standby: <b>central2", timeout=30_000)
        standby.cancel()
        await waits.close()
        with (tmp_path / "web01.log").open("a") as more:
            more.writelines(f"web01 goes on with {n}\n" for n in range(2000))
        written = (tmp_path / "web01.log").stat().st_size
        has_all = lambda: received_bytes(suite.output, "web01") == written  # noqa: E731
        await asyncio.to_thread(wait_until, "all is received", has_all, 30, [receiver])
        await expect(page.locator("#chart-lines svg")).to_have_attribute(
            "aria-label", "now: in 0, written 0", timeout=30_000
        )
        await page.locator("#chart-lines svg").hover()
        await expect(page.locator("#chart-lines output")).to_contain_text(re.compile(r"\d:\d\d in"))

        await page.keyboard.press("2")
        await expect(page.locator("a.row")).to_have_count(3)
        await page.locator("a.row", has_text="web01").focus()
        await page.keyboard.press("Enter")
        files = page.locator("#host .wide td")
        await expect(files.first).to_have_text(str(tmp_path / "web01.log"))
        await expect(files.nth(1)).to_have_text(f"byte {written:,}")
        facts = page.locator("#host .facts")
        await expect(facts).to_contain_text("Gaps of a day0, in .gaps.p0.jsonl")
        await expect(facts.locator(".good")).to_have_text("sending")
        last = page.locator("#host .lines li").last
        await expect(last).to_contain_text("web01 goes on with 1999")

        await page.get_by_text("all its lines").click()
        last = page.locator("#line-list li").last
        await expect(last).to_contain_text("web01 goes on with 1999")
        await page.fill("#line-host", "db* mail*")
        await page.fill("#line-match", "(line|with) 1?99$")
        await page.fill("#line-since", "earliest")
        await page.get_by_role("button", name="Search").click()
        await expect(page.locator("#line-list li", has_text="db01")).to_have_count(2)
        await expect(page.locator("#line-list li")).to_have_count(4)
        assert "match=%28line%7Cwith%29%201%3F99%24" in page.url


async def test_a_line_is_found_zoomed_to_and_opened_by_the_keyboard_alone(
    page: Page, start_console: StartConsole, publish: Publish, logs_url: str
) -> None:
    for number in range(60):
        await publish("web01", f"\tat line {number}\n".encode())
        await publish("web02", b"2026-11-29 ERROR of another host\n")
    url = start_console(logs_url)
    await page.emulate_media(color_scheme="dark")
    await page.goto(f"{url}/#lines?host=web01&since=5m&until=now&zone=Asia/Tokyo")
    lines = page.locator("#line-list li")
    await expect(page.locator("#lines")).to_have_attribute("aria-busy", "false", timeout=30_000)
    await expect(lines).to_have_count(60)
    await expect(page.locator("#line-note")).to_contain_text(re.compile("searched .* of"))
    assert await lines.first.locator("span").text_content() == "\tat line 0"
    dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark == "rgb(21, 23, 26)"

    await page.locator("#histogram").focus()
    await page.keyboard.press("ArrowRight")
    for _ in range(200):  # to the end of the axis
        await page.keyboard.press("Shift+ArrowRight")
    await expect(page.locator("#histogram-note")).to_contain_text("60 lines, 0 errors")
    await page.keyboard.press("Enter")
    await expect(page.locator("#lines")).to_have_attribute("aria-busy", "false", timeout=30_000)
    await expect(lines).to_have_count(60)
    assert "since=20" in page.url
    assert "zone=Asia%2FTokyo" in page.url

    await page.locator("#line-list").focus()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    around = page.locator("#around-list li")
    await expect(around).to_have_count(52, timeout=30_000)
    await expect(page.locator("#around-list [aria-current]")).to_contain_text("at line 1")
    await expect(page.locator("#around-facts")).to_contain_text("/var/log/app.log")
    linked = page.url
    await page.keyboard.press("Escape")
    await expect(page.locator("#around")).to_be_hidden()
    await expect(lines).to_have_count(60)
    await page.goto("about:blank")
    await page.goto(linked)
    await expect(page.locator("#around-list [aria-current]")).to_contain_text("at line 1")


async def test_the_severity_of_a_line_is_seen_and_a_range_is_dragged(
    page: Page, start_console: StartConsole, publish: Publish, logs_url: str
) -> None:
    await publish("web01", b'{"level":"error"}\n<12>warned\nplain\n')
    await page.goto(f"{start_console(logs_url)}/#lines?since=2m&until=now")
    await expect(page.locator("#line-list .error")).to_have_text(re.compile('"level"'))
    await expect(page.locator("#line-list .warning")).to_have_text(re.compile("warned"))
    await expect(page.locator("#histogram rect.error")).to_have_count(1)

    box = await page.locator("#histogram").bounding_box()
    assert box
    await page.mouse.move(box["x"] + 2, box["y"] + 9)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 9)
    await page.mouse.up()
    await expect(page.locator("#line-list li")).to_have_count(0, timeout=20_000)
    assert "until=20" in page.url
    await page.go_back()
    await expect(page.locator("#line-list li")).to_have_count(3, timeout=20_000)


@pytest.mark.long
async def test_five_thousand_hosts_are_sorted_found_and_scrolled(
    page: Page, start_console: StartConsole, connection: Connection, logs_url: str
) -> None:
    for first in range(0, 5000, 500):
        await asyncio.gather(
            *(
                connection.ask(f"logs.p{n % 2}.host-{n:04}", *message(b"x\n"))
                for n in range(first, first + 500)
            )
        )
    await page.goto(f"{start_console(logs_url)}/#hosts")

    await expect(page.locator("#host-count")).to_have_text("5,000 of 5,000 hosts", timeout=30_000)
    assert await page.locator("a.row").count() < 100
    await page.locator("#host-list").evaluate("list => { list.scrollTop = list.scrollHeight; }")
    await expect(page.locator("a.row", has_text="host-4999")).to_be_visible()
    await page.locator("#host-head button").first.click()
    await page.locator("#host-list").evaluate("list => { list.scrollTop = 0; }")
    await expect(page.locator("a.row").first).to_contain_text("host-4999")
    await page.fill("#find", "HOST-123")
    await expect(page.locator("#host-count")).to_have_text("10 of 5,000 hosts")


async def test_hostile_lines_are_shown_as_text_and_an_invalid_query_is_reported(
    page: Page, start_console: StartConsole, publish: Publish, logs_url: str
) -> None:
    await publish("<b", HOSTILE + b"\n" + b"y" * 1024 * 1024 + b"\n", file=f"/var/{MARKUP}\x1b.log")
    await page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    await page.goto(f"{start_console(logs_url)}/#lines")

    line = page.locator("#line-list li span").first
    await expect(line).to_have_text(
        f"{MARKUP} \\x1b[31mred \\u202eesrever \\x00\\xff\\xfe end", timeout=20_000
    )
    await expect(page.locator("#line-list li").last).to_contain_text("and 1,032,192 bytes more")
    await page.click("#line-copy")  # without a clipboard of the page
    await expect(page.locator("#line-said")).to_have_text("copied")
    await line.click()
    await expect(page.locator("#around-title")).to_have_text(f"<b /var/{MARKUP}\\x1b.log")
    await page.click("#around-copy")
    await expect(page.locator("#around-said")).to_have_text("copied")
    await page.keyboard.press("Escape")
    await page.fill("#line-match", "(")
    await page.get_by_role("button", name="Search").click()
    await expect(page.locator("#line-note")).to_contain_text("not a regular expression")
    await page.goto(f"{page.url.partition('#')[0]}#hosts")
    await expect(page.locator("a.row")).to_contain_text("<b")
    await page.locator("a.row").click()
    await expect(page.locator("#host h2")).to_have_text("<b")
    assert await page.locator("img").count() == 0
    assert await page.title() == "logship console"


@pytest.mark.long
async def test_the_page_says_that_the_broker_is_away_until_it_is_back(
    page: Page, start_console: StartConsole, own_server: Server
) -> None:
    await asyncio.to_thread(apply_topology, own_server.url, Topology(partitions=1))
    await page.goto(start_console(own_server.url))
    await expect(page.locator("#partitions tbody tr")).to_have_count(1, timeout=20_000)

    await asyncio.to_thread(own_server.stop)
    await expect(page.locator("#trouble")).to_contain_text("does not answer", timeout=30_000)
    await expect(page.locator("#trouble")).to_contain_text("The figures are those of")
    await expect(page.locator("body")).to_have_class("away")
    await asyncio.to_thread(own_server.start)
    await expect(page.locator("#trouble")).to_be_hidden(timeout=60_000)


async def test_stop_ends_a_search(
    page: Page, start_console: StartConsole, own_server: Server
) -> None:
    await asyncio.to_thread(apply_topology, own_server.url, Topology(partitions=1))
    await page.goto(start_console(own_server.url))
    await expect(page.locator("#partitions tbody tr")).to_have_count(1, timeout=20_000)

    over = asyncio.Event()
    await page.route("**/lines?*", lambda _: over.wait())  # so that the search takes long
    await page.keyboard.press("3")
    await expect(page.locator("#line-note")).to_have_text("0 lines · searching")
    async with page.expect_event("requestfailed", lambda one: "/lines?" in one.url):
        await page.click("#line-stop")
    await expect(page.locator("#line-note")).to_have_text("0 lines · stopped")
    await expect(page.locator("#line-stop")).to_be_hidden()
    over.set()
    await page.unroute("**/lines?*")

    await page.get_by_role("button", name="Search").click()
    await expect(page.locator("#line-note")).to_contain_text("following", timeout=30_000)


@pytest.mark.long
async def test_a_row_keeps_the_focus_and_a_phone_shows_a_pause_and_entries(
    page: Page,
    start_console: StartConsole,
    publish: Publish,
    connection: Connection,
    logs_url: str,
) -> None:
    for number in range(5):
        await publish(f"web{number}", b"x\n")
    journal = Cursor("f2", "journal", 1234, Identity(0, 0, "ab", 0, ""), 1, unit="entries")
    saved = Positions({journal.file: journal}).encode()
    await connection.ask("$KV.LOGS_POSITIONS.web3", saved)
    command = (sys.executable, "-m", "broker", "pause", "web3", "--server", logs_url)
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.goto(f"{start_console(logs_url)}/#hosts")

    row = page.locator("a.row", has_text="web3")
    await expect(row.get_by_text("paused")).to_be_in_viewport(timeout=20_000)
    await row.focus()
    await page.locator("#find").evaluate("one => one.dispatchEvent(new Event('input'))")
    await expect(row).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#host h2")).to_have_text("web3")
    await expect(page.locator("#host .wide")).to_contain_text("entry 1,234")
    wide = "document.documentElement.scrollWidth"
    assert await page.evaluate(wide) == 360
    await expect(row).to_be_focused()
    await page.goto(f"{page.url.partition('#')[0]}#overview")
    await expect(page.locator("#partitions")).to_contain_text("; hosts paused: 1", timeout=20_000)
