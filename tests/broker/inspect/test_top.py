"""Rates from one view to the next, of what comes in and of what receivers commit."""

import asyncio

import pytest

from broker.client.connection import Connection
from broker.inspect.message import StoredMessage
from broker.inspect.top import TopView, watch
from broker.topology import Topology
from broker.wire.message import Origin, Section, Span, encode_origin
from tests.broker.inspect.test_status import a_status
from tests.conftest import Server, apply_topology


@pytest.mark.nats
async def test_a_broker_that_goes_away_is_waited_for(own_server: Server) -> None:
    await asyncio.to_thread(apply_topology, own_server.url, Topology(partitions=1))
    connection = Connection([own_server.url], "top")
    await connection.once()
    views = watch(connection, 0.1)
    async with asyncio.timeout(90):
        assert (await anext(views)).trouble == ""
        await asyncio.to_thread(own_server.stop)
        while not (await anext(views)).trouble:
            pass
        await asyncio.to_thread(own_server.start)
        while (await anext(views)).trouble:
            pass
        await connection.ask("logs.p0.web01", b"a\n")
        while not (await anext(views)).hosts:
            pass
    await views.aclose()
    await connection.close()


def _message(subject: str, lines: int, size: int, told: int = 0) -> StoredMessage:
    section = Section("/var/log/app.log", Span("1", 0, size), size, lines)
    headers = encode_origin(Origin("1-a", 1, (section,)))
    return StoredMessage(subject, 1, 1, headers, b"", told or size)


def _view() -> TopView:
    """Return the view after two seconds, in which a receiver committed 200 lines and another one was set back."""
    first, second = a_status().partitions
    view = TopView(a_status(partitions=(first, second.model_copy(update={"lines": 9}))))
    for _ in range(10):
        view.add(_message("logs.p0.web01", 5, 1000))
        # what a receiver would quarantine has bytes, but no lines and no host
        view.add(_message("logs.p1.evil", 5, 900, told=500))
    moved = (first.model_copy(update={"lines": 240}), second.model_copy(update={"lines": 0}))
    view.rate(a_status(partitions=moved), 2.0)
    return view


def test_rates_are_what_was_counted_since_the_last_view() -> None:
    view = _view()

    first, second = view.partitions[0], view.partitions[1]
    assert (first.rounds, first.lines, first.bytes, first.lines_out) == (5, 25, 5000, 100)
    assert (second.lines, second.bytes, second.lines_out) == (0, 2500, 0)
    assert view.hosts.keys() == {"web01"}
