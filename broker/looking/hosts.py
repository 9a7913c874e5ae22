"""`logbroker hosts`: asks the stream who ships. Changes nothing.

What it costs: for 100,000 hosts the list of subjects is 3.5 MB in one answer, the last headers of each 100,000 small
messages, and as many are counted unless all are asked for.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from broker.client.connection import Connection
from broker.client.pauses import current_pauses
from broker.looking.census import Census, HostTraffic
from broker.looking.feed import EACH_LAST, Feed, Start, Taken, at_sequence
from broker.looking.message import nanoseconds
from broker.wire.pause import longest
from broker.wire.streams import STREAM
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject

__all__ = ["COUNTED", "Found", "ask", "last_seen", "rates", "subjects"]

COUNTED = 100_000
"""How many of the newest messages are read for lines and bytes unless all are."""


@dataclass(frozen=True, slots=True)
class Found:
    """The hosts by name, and the broker's time then, in nanoseconds since the epoch."""

    hosts: list[HostTraffic]
    now: int


async def subjects(connection: Connection, subject_filter: str = ">") -> dict[str, int]:
    """Return how many messages the stream holds on each subject; raises `Rejected` or `ConnectionLost`."""
    found: dict[str, int] = {}
    while True:
        info = await _page(connection, subject_filter, len(found))
        before = len(found)
        found.update(info["state"].get("subjects") or {})
        # a page may bring nothing new: subjects that come and go meanwhile move the others
        if len(found) == before or len(found) >= info.get("total", 0):
            return found


async def _page(connection: Connection, subject_filter: str, offset: int) -> dict[str, Any]:
    body = {"subjects_filter": subject_filter, "offset": offset}
    return await connection.api(f"STREAM.INFO.{STREAM}", body, patience=30)


async def ask(connection: Connection, *, count_all: bool) -> Found:
    """Return who ships, reading the headers of all messages or of the newest 100,000; raises `Rejected` or `ConnectionLost`."""
    census = Census()
    info = await connection.api(f"STREAM.INFO.{STREAM}")
    state = info["state"]
    for subject, messages in (await subjects(connection)).items():
        census.holds(subject, messages)
    await _last_of_each(connection, census, state)
    begin = (
        state["first_seq"]
        if count_all
        else max(state["first_seq"], state["last_seq"] + 1 - COUNTED)
    )
    async for delivery, message in _read(connection, at_sequence(begin), state["last_seq"]):
        census.count(delivery.stored_at, message)
    now, pauses = nanoseconds(info["ts"]), await current_pauses(connection)
    moment = datetime.fromtimestamp(now / 1e9, UTC)
    hosts = [
        replace(one, paused=str(found) if (found := longest(pauses, one.host, moment)) else None)
        for one in census.hosts(whole=begin <= state["first_seq"])
    ]
    return Found(hosts, now)


async def last_seen(connection: Connection) -> list[HostTraffic]:
    """Return the hosts with when they were last seen; nothing else is counted."""
    census = Census()
    state = (await connection.api(f"STREAM.INFO.{STREAM}"))["state"]
    await _last_of_each(connection, census, state)
    return census.hosts(whole=False)


async def rates(connection: Connection, seconds: float) -> dict[str, float]:
    """Return how many messages a second each host sends that sends any, as counted over `seconds`; raises as `subjects`."""
    clock = asyncio.get_running_loop().time
    began, before = clock(), await subjects(connection)
    await asyncio.sleep(seconds)
    ended, after = clock(), await subjects(connection)
    found: dict[str, float] = {}
    for subject, messages in after.items():
        more = messages - before.get(subject, 0)
        with suppress(InvalidSubject, InvalidHost):
            if more > 0:
                host = Subject.parse(subject).host
                found[host] = found.get(host, 0.0) + more / (ended - began)
    return found


async def _last_of_each(connection: Connection, census: Census, state: Mapping[str, int]) -> None:
    """Tell of the last message of each subject."""
    async for delivery, message in _read(connection, EACH_LAST, state["last_seq"]):
        census.last(delivery.stored_at, message)


async def _read(connection: Connection, start: Start, last: int) -> AsyncGenerator[Taken, None]:
    """Yield messages without their payloads, up to sequence `last`."""
    feed = Feed(connection, start, headers_only=True)
    try:
        while taken := await feed.take_up_to(last):
            for one in taken:
                if one.delivery.sequence <= last:
                    yield one
    finally:
        await feed.close()
