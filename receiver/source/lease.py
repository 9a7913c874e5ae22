"""Connections of this process to brokers: kept from one task to the next while the worker is reused, closed when idle."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from broker.client.access import Access
from broker.client.connection import Connection
from receiver.consume import background

__all__ = ["connected", "let_go"]

_IDLE = 30.0  # seconds without a user
_CLOSING = 10.0  # seconds


@dataclass(slots=True)
class _Kept:
    connection: Connection
    users: int = 0
    uses: int = 0
    is_watched: bool = False


_kept: dict[tuple[int, tuple[str, ...], Access], _Kept] = {}  # by process: workers are forked
_changing = threading.Lock()


@contextmanager
def connected(
    servers: tuple[str, ...], access: Access, idle: float = _IDLE
) -> Iterator[Connection]:
    """Lend the connection to a broker; it is closed when nobody has used it for `idle` seconds, and opens again by itself."""
    kept = _take(servers, access)
    try:
        yield kept.connection
    finally:
        with _changing:
            kept.users -= 1
            is_new = not kept.is_watched
            kept.is_watched = True
        if is_new:
            background.submit(_close_when_idle(kept, idle))


def let_go(servers: tuple[str, ...], access: Access) -> None:
    """Close the connection now."""
    if kept := _kept.get((os.getpid(), servers, access)):
        background.wait(kept.connection.close(), _CLOSING)


def _take(servers: tuple[str, ...], access: Access) -> _Kept:
    key = (os.getpid(), servers, access)
    with _changing:
        if key not in _kept:
            name = f"spark jetstream {os.getpid()}"
            _kept[key] = _Kept(Connection(servers, name, access=access))
        _kept[key].users += 1
        _kept[key].uses += 1
        return _kept[key]


async def _close_when_idle(kept: _Kept, idle: float) -> None:
    seen = -1
    while kept.users or kept.uses != seen:
        seen = kept.uses
        await asyncio.sleep(idle)
    with _changing:
        kept.is_watched = False
    if not kept.users:
        await kept.connection.close()
