"""A small HTTP server for health checks and Prometheus: GET of fixed paths, one request each.

It limits clients, sizes and time, so that no client can disturb the program.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from nats_logship.app.address import Address
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.files import describe_os_error
from nats_logship.app.text import printable

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_MAX_CLIENTS = 16
_MAX_REQUEST = 8192  # bytes
_PATIENCE = 5.0  # seconds for a client in all
_LATER = {errno.EADDRNOTAVAIL, socket.EAI_AGAIN}
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
logger = logging.getLogger("monitoring")


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: its HTTP status, body and content type."""

    status: int
    body: bytes
    kind: str = "text/plain; charset=utf-8"


def health_page(unhealthy: str, well: str = "ok") -> Page:
    """Return the page of `/healthz`: the reason if the program is unhealthy, else `well`."""
    return Page(503 if unhealthy else 200, f"{printable(unhealthy or well)}\n".encode())


def metrics_page(collect: "Callable[[], Iterable[Metric]]") -> Callable[[], Page]:
    """Return the page of `/metrics`: the metrics of `collect`, and those of the process."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.registry import Collector

    class Collected(Collector):
        def describe(self) -> "list[Metric]":
            return []

        def collect(self) -> "Iterable[Metric]":
            return collect()

    registry = CollectorRegistry()
    registry.register(Collected())
    ProcessCollector(registry=registry)
    return lambda: Page(200, generate_latest(registry), _METRICS)


def explain_bind_error(address: Address, error: OSError, advice: str) -> OperatorError:
    """Return why an address cannot be listened on, with what to do.

    It is a `ConfigurationError`, unless this machine may have the address a little after its boot.
    """
    reason = f"cannot listen on {address}: {describe_os_error(error)}; {advice}"
    return (OperatorError if error.errno in _LATER else ConfigurationError)(reason)


@asynccontextmanager
async def page_server(
    address: Address,
    pages: Mapping[str, Callable[[], Page]],
    option: str = "--listen",
    patience: float = _PATIENCE,
) -> AsyncIterator[None]:
    """Serve a page for each path until the end of the block; a client has `patience` seconds.

    Raises `OperatorError`, which names `option`, as `explain_bind_error`.
    """
    clients: set[asyncio.StreamWriter] = set()
    serve = partial(_serve, pages, patience, clients)
    try:
        server = await asyncio.start_server(serve, address.host, address.port, limit=_MAX_REQUEST)
    except OSError as error:
        raise explain_bind_error(address, error, f"check {option}") from None
    port = server.sockets[0].getsockname()[1]
    logger.info("listening on http://%s", address.reached_at(port))
    try:
        yield
    finally:
        server.close()
        for client in clients:
            client.transport.abort()


async def _serve(
    pages: Mapping[str, Callable[[], Page]],
    patience: float,
    clients: set[asyncio.StreamWriter],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    if len(clients) >= _MAX_CLIENTS:
        writer.transport.abort()
        return
    clients.add(writer)
    try:
        async with asyncio.timeout(patience):
            writer.write(_answer(pages, await _read_head(reader)))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()
    finally:
        clients.discard(writer)


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""


def _answer(pages: Mapping[str, Callable[[], Page]], request: bytes) -> bytes:
    parts = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(parts) != 3 or parts[0] != "GET":
        page = Page(400, b"GET a page\n")
    elif make := pages.get(parts[1].partition("?")[0]):
        page = make()
    else:
        page = Page(404, "".join(f"{path}\n" for path in pages).encode())
    head = (
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}\r\nContent-Type: {page.kind}\r\n"
        f"Content-Length: {len(page.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + page.body
