"""The event loop of a Spark worker: a thread beside the tasks, so that connections live on from one task to the next.

Workers are forked and reused; whatever is kept here is kept per process.
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
    """Run a coroutine on the worker's loop and return what it returns.

    Raises TimeoutError after `patience` seconds, but for those in which a large message arrives.
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
    """Return the connection of this worker to the broker, the same for every task; `program` is its name there."""
    key = (os.getpid(), servers, access)
    if key not in _connections:
        _connections[key] = Connection(servers, f"{program} {os.getpid()}", access=access)
    return _connections[key]


@cache
def _loop_of(_: int) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="receiver-loop", daemon=True).start()
    return loop
