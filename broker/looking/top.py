"""Watches what moves at the broker, for `logbroker top`: reads the headers of what comes in, and asks now and then."""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator
from typing import Any

from broker.app.exits import OperatorError
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.client.patience import ELECTION, until_answered
from broker.looking.feed import EACH_LAST, Feed, at_sequence
from broker.looking.sight import Status
from broker.looking.status import glance
from broker.looking.traffic import Picture, Traffic
from broker.wire.streams import STREAM

__all__ = ["watch"]

_TOO_MANY = 20_000  # messages behind; whoever watches wants to see the present
_PATIENCE = 5.0  # seconds for the broker's answers
logger = logging.getLogger(__name__)


async def watch(connection: Connection, interval: float) -> AsyncGenerator[Picture, None]:
    """Yield a picture every `interval` seconds, the first one after one; raises what the first look raises.

    A broker that goes away later is waited for, with a picture that says so.
    """
    clock = asyncio.get_running_loop().time
    traffic = Traffic(clock())

    async def begin(connection: Connection) -> Status:
        status = await glance(connection)
        await _meet(connection, traffic, status.last_sequence)
        return status

    status = await until_answered(connection, begin, ELECTION)
    traffic.glanced(status, clock())
    reading = asyncio.ensure_future(_count(connection, traffic, status.last_sequence + 1))
    try:
        while True:
            await asyncio.sleep(interval)
            if reading.done():
                reading.result()
            seen, trouble = await _look(connection)
            if seen is not None:
                status = seen
                traffic.glanced(status, clock())
            yield traffic.picture(status, clock(), trouble)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _look(connection: Connection) -> tuple[Status | None, str]:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await glance(connection), ""
    except TimeoutError:
        return None, connection.away or f"no answer within {_PATIENCE:g} s"
    except (ConnectionLost, Rejected, OperatorError) as error:
        return None, str(error)


async def _meet(connection: Connection, traffic: Traffic, last: int) -> None:
    feed = Feed(connection, EACH_LAST, headers_only=True)
    try:
        while taken := await feed.take_up_to(last):
            for delivery, message in taken:
                traffic.known(delivery.stored_at, message)
    finally:
        await feed.close()


async def _count(connection: Connection, traffic: Traffic, first: int) -> None:
    """Count what comes in; where more comes than can be looked at, what is oldest of it is passed over and counted."""
    clock = asyncio.get_running_loop().time
    while True:
        feed = Feed(connection, at_sequence(first), headers_only=True)
        try:
            while not feed.pending or feed.pending < _TOO_MANY:
                for delivery, message in await feed.wait():
                    traffic.arrived(delivery.stored_at, message, clock())
        finally:
            await feed.close()
        traffic.skipped += feed.pending
        info = await until_answered(connection, _info, math.inf)
        first = info["state"]["last_seq"] + 1


async def _info(connection: Connection) -> dict[str, Any]:
    return await connection.api(f"STREAM.INFO.{STREAM}")
