"""An event loop in a thread of a Spark worker: connections live on from one task to the next.

Spark forks workers and uses them again, so everything here is kept for each process.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from nats_logship.client.access import Access
from nats_logship.client.connection import Connection

Answer = TypeVar("Answer")

_connections: dict[tuple[int, tuple[str, ...], Access], Connection] = {}
_starting = threading.Lock()


def submit(call: Coroutine[Any, Any, Answer]) -> "Future[Answer]":
    """Start a coroutine on the worker's loop."""
    with _starting:
        loop = _loop_of(os.getpid())
    return asyncio.run_coroutine_threadsafe(call, loop)


def wait(call: Coroutine[Any, Any, Answer], patience: float) -> Answer:
    """Run a coroutine on the worker's loop and return its result.

    Raises TimeoutError after `patience` seconds in which no part of a large message has arrived.
    """
    future = submit(call)
    try:
        while True:
            before = _incoming()
            with suppress(TimeoutError):
                return future.result(patience)
            if future.done() or _incoming() <= before:
                return future.result(0)
    finally:
        future.cancel()


def _incoming() -> int:
    here = [one for (process, *_), one in _connections.items() if process == os.getpid()]
    return max((one.incoming for one in here), default=0)


def connection(
    servers: tuple[str, ...],
    access: Access = Access(),  # noqa: B008 - a frozen value
    program: str = "logreceiver worker",
) -> Connection:
    """Return this worker's connection, the same for all tasks; `program` is its name for NATS."""
    key = (os.getpid(), servers, access)
    if key not in _connections:
        _connections[key] = Connection(servers, f"{program} {os.getpid()}", access=access)
    return _connections[key]


@cache
def _loop_of(_: int) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="receiver-loop", daemon=True).start()
    return loop
