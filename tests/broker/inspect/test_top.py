import asyncio
import io
from dataclasses import replace

import pytest
from rich.console import Console

from broker.client.connection import Connection
from broker.inspect.message import StoredMessage, nanoseconds, read_message
from broker.inspect.top import TopView, Traffic, draw, watch
from broker.topology import Topology
from broker.wire.message import Origin, Section, Span, encode_origin
from tests.broker.inspect.conftest import Publish
from tests.broker.inspect.test_status import NOW, a_status
from tests.conftest import Server, apply_topology


@pytest.mark.nats
async def test_what_comes_in_is_counted_by_host_and_partition(
    connection: Connection, publish: Publish
) -> None:
    await publish("quiet", b"x\n", partition=1)
    views = watch(connection, 0.2)
    view = await anext(views)
    while not view.lines_in:
        await publish("web01", b"a\nb\n")
        view = await anext(views)
    await views.aclose()

    hosts = {host.host: host for host in view.hosts}
    assert hosts["web01"].lines > 0 == hosts["quiet"].lines
    assert hosts["quiet"].silent > 0
    assert view.partitions[0].lines_in > 0 == view.partitions[1].lines_in


@pytest.mark.nats
async def test_a_broker_that_goes_away_is_waited_for(
    own_server: Server,
) -> None:
    await asyncio.to_thread(apply_topology, own_server.url, Topology(partitions=1))
    connection = Connection([own_server.url], "top")
    await connection.once()
    views = watch(connection, 0.1)
    assert (await anext(views)).trouble == ""
    await asyncio.to_thread(own_server.stop)
    async with asyncio.timeout(90):
        while not (await anext(views)).trouble:
            pass
    await asyncio.to_thread(own_server.start)
    async with asyncio.timeout(90):
        while (await anext(views)).trouble:
            pass
    await connection.ask("logs.p0.web01", b"a\n")
    async with asyncio.timeout(90):
        while not (await anext(views)).lines_in:
            pass
    await views.aclose()
    await connection.close()


_STORED = nanoseconds(NOW)
_SECOND = 10**9


def _message(
    subject: str, lines: int, size: int, waited: float, told: int = 0, before: int = 0
) -> StoredMessage:
    section = Section("/var/log/app.log", Span("1", 0, size), size, lines)
    headers = encode_origin(Origin("1-a", _STORED - int(waited * _SECOND), (section,)))
    return read_message(subject, 1, _STORED - before, headers, b"", told or size)


def _steady() -> Traffic:
    """Return what was counted of ten messages a second of web01, and a message of db01 long ago."""
    traffic = Traffic(0.0, _STORED)
    traffic.add(read_message("logs.p1.db01", 1, _STORED - 600 * _SECOND, {}, b""), 0.0)
    traffic.add(_message("logs.p1.slow", 1, 1, waited=30.0, before=1), 0.0)
    for step in range(600):
        traffic.add(_message("logs.p0.web01", 5, 1000, waited=2.0), step / 10)
        # what a receiver would quarantine has bytes, but no lines and no host
        traffic.add(_message("logs.p1.evil", 5, 900, 0.0, told=500), step / 10)
    return traffic


def _view() -> TopView:
    return _steady().view(a_status(), 60.0)


def test_rates_are_those_of_the_last_seconds() -> None:
    view = _view()

    assert view.lines_in == pytest.approx(50, rel=0.05)
    assert view.bytes_in == pytest.approx(15_000, rel=0.05)
    assert view.partitions[0].lines_in == pytest.approx(50, rel=0.05)
    assert view.partitions[1].lines_in == 0
    assert _steady().view(a_status(), 600.0).lines_in == pytest.approx(0, abs=0.1)
    hosts = {host.host: host for host in view.hosts}
    assert (hosts["db01"].silent, hosts["db01"].lines) == (600.0, 0.0)
    assert hosts["web01"].silent == 0.0
    assert "evil" not in hosts


def test_receivers_are_as_fast_as_their_totals_grow() -> None:
    traffic = Traffic(0.0, _STORED)
    first, second = a_status().partitions
    for step in range(31):
        committed = replace(first, lines=step * 200, bytes=step * 4000)
        status = a_status(partitions=(committed, second))
        traffic.look(status, step * 2.0)
    fast, unclaimed = traffic.view(status, 60.0).partitions
    traffic.look(a_status(), 60.0)  # set back, which is no rate

    assert fast.lines_out == pytest.approx(100, rel=0.15)
    assert fast.bytes_out == pytest.approx(2000, rel=0.15)
    assert unclaimed.lines_out is None
    assert (traffic.view(a_status(), 60.0).partitions[0].lines_out or 0) > 0


def _drawn(view: TopView, height: int = 60) -> list[str]:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(draw(view, height))
    return console.export_text().splitlines()


@pytest.mark.parametrize("height", [24, 12, 60])
def test_a_screen_has_what_fits_and_begins_with_what_is_furthest_behind(height: int) -> None:
    one = a_status().partitions[0]
    many = tuple(replace(one, partition=n, behind_seconds=float(n)) for n in range(50))

    lines = _drawn(_steady().view(a_status(partitions=many), 60.0), height)

    assert len(lines) <= height
    assert any(line.startswith("p49 ") for line in lines)
    assert any(line.startswith("web01") for line in lines)


def test_what_is_out_of_the_ordinary_is_marked() -> None:
    view = replace(_view(), trouble="no broker\x1b")

    text = "\n".join(_drawn(view))

    assert "3, 1 silent" in text
    assert text.count("SILENT") == 1
    assert r"NO ANSWER: no broker\x1b" in text
