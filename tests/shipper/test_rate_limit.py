"""The token bucket of `--max-rate`, by a clock of its own; and the whole with real programs."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from shipper.rate_limit import RateLimit
from tests.pages import page, samples
from tests.shipper.conftest import read_lines, wait_for_lines
from tests.shipper.logs import Ship, lines, run, wait_for_log
from tests.support.processes import wait_until

RATE = 1000  # bytes per second


class Clock:
    """A time that passes only in `sleep`."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def send(limit: RateLimit, clock: Clock, sizes: list[int]) -> list[float]:
    """Send rounds one after the other as soon as they may; return when each was sent."""

    async def send_all() -> list[float]:
        sent = []
        for size in sizes:
            clock.now += limit.seconds_until(size)
            await limit.wait_for(size, asyncio.Event())
            sent.append(clock.now)
        return sent

    return asyncio.run(send_all())


@pytest.mark.parametrize(
    ("sizes", "sent"),
    [
        pytest.param([400, 600, 500, 500], [0, 0, 0.5, 1], id="a second at once, then the rate"),
        pytest.param([5000, 1000], [0, 5], id="after a large round the next one waits longer"),
        pytest.param([1000, 5000, 1], [0, 1, 5.001], id="a large round waits for a second"),
        pytest.param([0, 1000, 0], [0, 0, 0], id="a round without lines needs nothing"),
    ],
)
def test_rounds_pass_at_the_rate(sizes: list[int], sent: list[float]) -> None:
    clock = Clock()

    assert send(RateLimit(RATE, clock), clock, sizes) == pytest.approx(sent)


@pytest.mark.parametrize("size", [1, 137, 999, 1000, 1001, 7000])
def test_no_time_passes_more_than_the_rate_and_a_second_or_a_round(size: int) -> None:
    clock = Clock()

    sent = send(RateLimit(RATE, clock), clock, [size] * 200)

    for first in range(0, 200, 20):
        for last in range(first, 200, 20):
            seconds, passed = sent[last] - sent[first], size * (last - first + 1)
            assert passed <= RATE * seconds + max(RATE, size) + 1
    assert sent[-1] <= size * 200 / RATE  # and not less either


def test_a_silence_saves_a_second_and_no_more() -> None:
    clock = Clock()
    limit = RateLimit(RATE, clock)
    send(limit, clock, [1000])
    clock.now += 3600

    assert send(limit, clock, [1000, 1000]) == [clock.now - 1, clock.now]


def test_another_rate_counts_from_now_on_and_none_is_no_limit() -> None:
    clock = Clock()
    limit = RateLimit(RATE, clock)
    send(limit, clock, [1000])
    limit.change(2 * RATE)
    twice = limit.seconds_until(1000)
    limit.change(0)
    free = send(limit, clock, [10**9] * 3)
    limit.change(RATE)

    assert (twice, free) == (0.5, [0, 0, 0])
    assert send(limit, clock, [1000, 1000]) == [0, 1]


def settings(url: str, log: Path, rate: str) -> str:
    return f'server = ["{url}"]\nfile = ["{log}"]\nmax_rate = "{rate}"\n'


@pytest.mark.nats
def test_a_rate_is_shown_reloaded_and_ends_at_once_and_no_line_is_lost(
    logs_url: str, ship: Ship, tmp_path: Path, own_host: str
) -> None:
    log, config = tmp_path / "a.log", tmp_path / "shipper.toml"
    log.write_bytes(written := lines(0, 100_000))
    config.write_text(settings(logs_url, log, "64KiB/s"))
    start = lambda: ship(  # noqa: E731
        logs_url, "--config", config, "--listen", "127.0.0.1:0", host=own_host
    )
    agent = start()
    wait_until("the rate holds", lambda: len(read_lines(logs_url)) > 100_000, 40, [agent])
    status, table = (run("status", *m, "--host", own_host).stdout for m in (["--json"], []))
    metrics = samples(page(agent, "/metrics")[1])
    began = time.monotonic()
    agent.stop()
    took = time.monotonic() - began
    before, first_log = read_lines(logs_url), agent.read_log()
    agent = start()
    wait_for_log(agent, "ships on")
    config.write_text(settings(logs_url, log, "0"))
    agent.hang_up()
    wait_for_log(agent, "changed: max_rate")
    wait_for_lines(logs_url, written, agent)
    agent.stop()

    assert took < 5  # a round in flight would have six seconds
    assert " unshipped; the next start with the same options ships them" in first_log
    assert "stopped, 0 B unshipped" in agent.read_log()
    assert written.startswith(before)
    assert len(before) < len(written)
    assert json.loads(status)[0]["max_rate_bytes"] == metrics["logshipper_max_rate_bytes"] == 65536
    assert json.loads(status)[0]["rate_held_seconds"] > 0
    assert metrics["logshipper_rate_held_seconds"] > 0
    assert "at most 64.0 KiB/s (--max-rate), which has held lines back for " in table


@pytest.mark.nats
def test_once_keeps_to_the_rate(logs_url: str, tmp_path: Path, own_host: str) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(written := lines(0, 30_000))
    began = time.monotonic()
    options = ("--file", log, "--once", "--max-rate", "200KB/s", "--host", own_host)
    done = run(*map(str, options), "--server", logs_url)
    took = time.monotonic() - began

    assert done.returncode == 0, done.stderr
    assert "shipped 30,000 lines, 849.6 KiB, of 1 file\n" in done.stderr
    assert took >= 0.9 * (len(written) / 200_000 - 1)
    assert read_lines(logs_url) == written
