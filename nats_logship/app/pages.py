"""A small HTTP server for who watches over a program: some paths, GET alone, one request a connection.

Bounded in clients, sizes and time, so that no client, slow or hostile, can disturb the work.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from nats_logship.app.address import Address
from nats_logship.app.exits import ConfigurationError
from nats_logship.app.text import printable

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_MOST_CLIENTS = 16
_MOST_REQUEST = 8192
_PATIENCE = 5.0  # seconds that a client has in all
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
logger = logging.getLogger("monitoring")


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: its HTTP status, and its body in the form that `kind` says."""

    status: int
    body: bytes
    kind: str = "text/plain; charset=utf-8"


def health_page(unhealthy: str, well: str = "ok") -> Page:
    """Return the page of `/healthz` for why a program is unhealthy, if it is; `well` is what it says else."""
    return Page(503 if unhealthy else 200, f"{printable(unhealthy or well)}\n".encode())


def metrics_page(collect: "Callable[[], Iterable[Metric]]") -> Callable[[], Page]:
    """Return what makes the page of `/metrics`: the families that `collect` yields, and those of the process."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.registry import Collector

    class Collected(Collector):
        def describe(self) -> "list[Metric]":
            return []  # what there is is known when it is collected

        def collect(self) -> "Iterable[Metric]":
            return collect()

    registry = CollectorRegistry()
    registry.register(Collected())
    ProcessCollector(registry=registry)
    return lambda: Page(200, generate_latest(registry), _METRICS)


@asynccontextmanager
async def page_server(
    address: Address,
    pages: Mapping[str, Callable[[], Page]],
    option: str = "--listen",
    patience: float = _PATIENCE,
) -> AsyncIterator[None]:
    """Answer by what `pages` makes for each path, until the end of the block; a client has `patience` seconds.

    Raises `ConfigurationError`, which names `option`, where `address` cannot be listened on.
    """
    clients: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(clients) >= _MOST_CLIENTS:
            writer.transport.abort()
            return
        clients.add(writer)
        try:
            async with asyncio.timeout(patience):
                writer.write(_answer(pages, await _head_of(reader)))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):
            writer.transport.abort()
        finally:
            clients.discard(writer)

    try:
        server = await asyncio.start_server(serve, address.host, address.port, limit=_MOST_REQUEST)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {address}: {error.strerror or error}; check {option}"
        ) from None
    port = server.sockets[0].getsockname()[1]
    logger.info("listening on http://%s", address.reached_at(port))
    try:
        yield
    finally:
        server.close()
        for client in clients:
            client.transport.abort()


def _answer(pages: Mapping[str, Callable[[], Page]], request: bytes) -> bytes:
    words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3 or words[0] != "GET":
        page = Page(400, b"GET a page\n")
    elif make := pages.get(words[1].partition("?")[0]):
        page = make()
    else:
        page = Page(404, "".join(f"{path}\n" for path in pages).encode())
    head = (
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}\r\nContent-Type: {page.kind}\r\n"
        f"Content-Length: {len(page.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + page.body


async def _head_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""
