"""A small HTTP server for who watches over a program: some paths, GET alone, one request a connection.

Bounded in clients, sizes and time, so that no client, slow or hostile, can disturb the work.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from broker.app.address import Address
from broker.app.exits import ConfigurationError
from broker.app.untrusted import printable

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


class PageServer:
    """Answers while it is entered."""

    def __init__(
        self,
        address: Address,
        pages: Mapping[str, Callable[[], Page]],
        option: str = "--listen",
        patience: float = _PATIENCE,
    ) -> None:
        """Remember where to listen, by which option, and by path what makes the answers; a client has `patience` seconds."""
        self._address = address
        self._option = option
        self._pages = pages
        self._patience = patience
        self._clients: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "PageServer":
        """Listen; raises `ConfigurationError` where that cannot be."""
        try:
            self._server = await asyncio.start_server(
                self._serve, self._address.host, self._address.port, limit=_MOST_REQUEST
            )
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {self._address}: {error.strerror or error}; check {self._option}"
            ) from None
        port = self._server.sockets[0].getsockname()[1]
        logger.info("listening on http://%s", self._address.reached_at(port))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening, and let go of who has not heard all yet."""
        if self._server is not None:
            self._server.close()
        for client in self._clients:
            client.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= _MOST_CLIENTS:
            writer.transport.abort()
            return
        self._clients.add(writer)
        try:
            async with asyncio.timeout(self._patience):
                page = self._answer(await _head_of(reader))
                head = (
                    f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}\r\nContent-Type: {page.kind}\r\n"
                    f"Content-Length: {len(page.body)}\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + page.body)
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):
            writer.transport.abort()
        finally:
            self._clients.discard(writer)

    def _answer(self, head: bytes) -> Page:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or words[0] != "GET":
            return Page(400, b"GET a page\n")
        if page := self._pages.get(words[1].partition("?")[0]):
            return page()
        return Page(404, "".join(f"{path}\n" for path in self._pages).encode())


async def _head_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""
