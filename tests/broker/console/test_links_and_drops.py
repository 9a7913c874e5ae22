"""The page in a real browser: links that chats changed, times, and connections that are lost."""

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, Request, expect

from broker.topology import Topology
from nats_logship.client.connection import Connection
from tests.broker.console.conftest import StartConsole
from tests.broker.inspect.conftest import Publish, message
from tests.conftest import Server, apply_topology
from tests.support.ports import free_port
from tests.support.processes import Process

pytestmark = pytest.mark.nats
TOKEN = "a token of a test"
_HIDE = """isHidden => {
  Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


async def finish_search(page: Page) -> None:
    await expect(page.locator("#lines")).to_have_attribute("aria-busy", "false", timeout=30_000)


async def test_a_link_to_a_line_opens_it_after_the_login_and_with_decoded_escapes(
    page: Page, start_console: StartConsole, publish: Publish, logs_url: str, tmp_path: Path
) -> None:
    await publish("web01", b"a line\nb?c+d line\n", file="/var/log/\udcff 1.log")
    (tmp_path / "token").write_text(TOKEN)
    url = start_console(logs_url, "--token-file", tmp_path / "token")
    await page.goto(f"{url}/#lines?since=1h&match=b%5C?c%5C+d")
    await page.fill("input", "not the token")
    await page.keyboard.press("Enter")
    await expect(page.locator("[role=alert]")).to_have_text("This is not the token.")
    await page.fill("input", TOKEN)
    await page.keyboard.press("Enter")
    await expect(page.locator("#line-list li")).to_contain_text(["b?c+d line"], timeout=30_000)
    await page.locator("#line-list li").click()
    chosen = page.locator("#around-list [aria-current]")
    await expect(chosen).to_contain_text("b?c+d line")

    decoded = page.url.replace("%2F", "/").replace("%3A", ":").replace("%2B", "+")
    assert decoded != page.url
    await page.goto("about:blank")
    await page.goto(decoded)
    await expect(chosen).to_contain_text("b?c+d line", timeout=30_000)
    await page.keyboard.press("Escape")
    await expect(page.locator("#around")).to_be_hidden()
    async with page.expect_request("**/lines?*"):  # the first click searches
        await page.get_by_role("button", name="Search").click()
    await page.locator("#line-list li").click()
    await page.click("#around-all")  # the name of the file is not UTF-8
    await finish_search(page)
    await expect(page.locator("#line-list li")).to_have_count(2)

    await page.goto(f"{url}/#hosts/50%")
    await expect(page.locator("#host h2")).to_have_text("50%")


async def test_the_address_holds_what_is_shown_with_dates(
    page: Page, start_console: StartConsole, publish: Publish, logs_url: str
) -> None:
    await publish("web01", b"a line\n")
    url = start_console(logs_url)
    await page.goto(f"{url}/#lines?since=00:00&until=now&host=web*&zone=Asia/Tokyo")
    await finish_search(page)
    day = re.compile(r"since=\d{4}-\d\d-\d\dT00%3A00%3A00%2B09%3A00&until=now")
    await expect(page).to_have_url(day)
    shown = page.url
    await page.keyboard.press("2")
    await expect(page.locator("a.row")).to_have_count(1)
    await page.keyboard.press("3")
    await expect(page).to_have_url(shown)
    await page.select_option("#zone", "UTC")  # of the same time
    await expect(page).to_have_url(shown.replace("Asia%2FTokyo", "UTC"))
    await finish_search(page)
    await expect(page.locator("#line-note")).to_contain_text("1 line")

    await page.fill("#line-host", "other")  # not searched for
    await page.locator("#histogram").focus()
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("until=20"))
    assert "host=web" in page.url


async def test_a_host_s_line_opens_without_a_search_of_all_its_lines(
    page: Page, start_console: StartConsole, publish: Publish, logs_url: str
) -> None:
    await publish("web01", b"a line\n")
    await page.goto(f"{start_console(logs_url)}/#hosts/web01")
    await page.locator("#host .lines li").click()
    await expect(page.locator("#around-list [aria-current]")).to_contain_text("a line")
    assert "since=20" in page.url
    assert "until=20" in page.url


async def test_a_page_of_5000_pixels_shows_lines_and_one_that_is_refused_says_why(
    page: Page, start_console: StartConsole, publish: Publish, logs_url: str
) -> None:
    await publish("web01", b"a line\n")
    await page.set_viewport_size({"width": 5000, "height": 700})
    await page.goto(f"{start_console(logs_url)}/#lines?since=1h")
    await expect(page.locator("#line-list li")).to_have_count(1, timeout=30_000)
    await page.fill("#line-match", "(")
    async with page.expect_request("**/lines?*"):
        await page.get_by_role("button", name="Search").click()
    await expect(page.locator("#line-note")).to_contain_text("not a regular expression")


async def test_times_are_exact_when_clocks_are_set_back_and_have_a_date(
    page: Page, start_console: StartConsole, logs_url: str
) -> None:
    await page.goto(start_console(logs_url))
    found = await page.evaluate(
        """async () => {
      const { clock, moment, setZone } = await import("/common.js");
      setZone("Europe/Berlin");
      const night = [0, 1].map((hour) => moment(Date.UTC(2026, 9, 25, hour, 30)));
      setZone("America/New_York");
      const now = Date.now();
      return [...night, moment(0), clock(0), clock(now).length];
    }"""
    )
    assert found == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:30:00+01:00",
        "1969-12-31T19:00:00-05:00",
        "1969-12-31 19:00:00",
        8,
    ]


async def test_a_few_spikes_do_not_flatten_a_chart(
    page: Page, start_console: StartConsole, logs_url: str
) -> None:
    await page.goto(start_console(logs_url))
    found = await page.evaluate(
        """async () => {
      const { top } = await import("/charts.js");
      const some = (size, ...rest) => [...Array(size).fill(10), ...rest];
      return [some(34, 5000, 9000), [...Array(40).fill(0), 8, 10, 10, 5000],
        some(30, 50, 60, 70), some(10, ...some(10).map((one) => 100 * one)), [7], []].map(top);
    }"""
    )
    assert found == [15, 15, 70, 1000, 7, 0]


async def test_a_chart_is_read_by_a_tap_and_by_the_keyboard(
    page: Page, start_console: StartConsole, logs_url: str
) -> None:
    await page.goto(start_console(logs_url))
    chart, value = page.locator("#chart-lines div"), page.locator("#chart-lines output")
    await expect(chart.locator("path.in[d*=L]")).to_be_attached(timeout=30_000)
    await chart.evaluate(
        "one => { for (const name of ['pointerleave', 'click'])"
        " one.dispatchEvent(new PointerEvent(name, { clientX: 3000 })); }"
    )
    await expect(value).to_have_text(re.compile(r"\d:\d\d in"))
    await chart.focus()
    last = await value.text_content()
    await page.keyboard.press("ArrowLeft")
    await expect(value).not_to_have_text(last or "")
    await chart.blur()
    await expect(value).to_have_text("")


async def test_a_hidden_page_keeps_no_connection_and_shows_new_lines_once_when_seen(
    page: Page, start_console: StartConsole, publish: Publish, logs_url: str
) -> None:
    await publish("web01", b"before\n")
    feeds: list[str] = []

    def list_feeds(request: Request) -> None:
        feeds.append(re.sub(r".*/(\w+)\?.*", r"\1", request.url))

    page.on("requestfailed", list_feeds)
    await page.goto(f"{start_console(logs_url)}/#lines?since=1h")
    await expect(page.locator("#line-note")).to_contain_text("following", timeout=30_000)
    await page.evaluate(_HIDE, True)
    await publish("web01", b"meanwhile\n")
    for _ in range(100):
        if sorted(feeds) == ["events", "lines"]:
            break
        await asyncio.sleep(0.1)
    assert sorted(feeds) == ["events", "lines"]

    await page.evaluate(_HIDE, False)
    texts = page.locator("#line-list span")
    await expect(texts).to_have_text(["before", "meanwhile"], timeout=20_000)
    await publish("web01", b"after\n")
    await expect(texts).to_have_text(["before", "meanwhile", "after"], timeout=20_000)


async def test_an_open_page_goes_on_after_a_restart_of_the_console_and_a_bad_gateway(
    page: Page,
    start_console: StartConsole,
    consoles: list[Process],
    publish: Publish,
    logs_url: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    port = free_port()
    url = start_console(logs_url, "--token-file", tmp_path / "token", port=port)
    await publish("web01", b"before\n")
    await page.goto(f"{url}/#lines?since=1h")
    await page.fill("input", TOKEN)
    await page.keyboard.press("Enter")
    await expect(page.locator("#line-note")).to_contain_text("following", timeout=30_000)

    await asyncio.to_thread(consoles[0].stop)
    await expect(page.locator("#trouble")).to_contain_text("does not answer", timeout=30_000)
    await page.route(re.compile("/(events|lines)"), lambda route: route.fulfill(status=502))
    await publish("web01", b"meanwhile\n")
    await asyncio.to_thread(start_console, logs_url, "--token-file", tmp_path / "token", port=port)
    async with page.expect_response(lambda one: one.status == 502, timeout=30_000):
        pass
    await asyncio.sleep(1)
    await page.unroute_all()
    await expect(page.locator("#trouble")).to_be_hidden(timeout=30_000)
    texts = page.locator("#line-list span")
    await expect(texts).to_have_text(["before", "meanwhile"], timeout=30_000)
    await expect(page.locator("#line-note")).to_contain_text("following")


@pytest.mark.long
async def test_lines_go_on_after_a_restart_of_the_broker(
    page: Page, start_console: StartConsole, own_server: Server
) -> None:
    await asyncio.to_thread(apply_topology, own_server.url, Topology(partitions=1))
    connection = Connection([own_server.url], "test")
    await connection.ask("logs.p0.web01", *message(b"before\n"))
    await page.goto(f"{start_console(own_server.url)}/#lines?since=1h")
    note, texts = page.locator("#line-note"), page.locator("#line-list span")
    await expect(note).to_contain_text("following", timeout=30_000)

    await asyncio.to_thread(own_server.stop)
    await expect(note).not_to_contain_text("following", timeout=90_000)
    await asyncio.to_thread(own_server.start)
    await connection.connect(30)
    await connection.ask("logs.p0.web01", *message(b"meanwhile\n"))
    await expect(texts).to_have_text(["before", "meanwhile"], timeout=90_000)
    await expect(note).to_contain_text("following")
    await connection.close()
