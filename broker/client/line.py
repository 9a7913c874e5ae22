"""The line to a server under nats-py: a socket, in the clear until it is secured."""

import asyncio
import socket
import ssl
from urllib.parse import ParseResult

from nats.aio.transport import Transport

__all__ = ["Line"]


class Line(Transport):
    """A line that, unlike nats-py's, reads as much at a time under TLS as without, and ends without a complaint."""

    def __init__(self) -> None:
        """Connect to nothing yet."""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._bare: asyncio.StreamWriter | None = None  # under TLS it keeps the socket open

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """Open it in the clear; raises OSError or TimeoutError."""
        async with asyncio.timeout(connect_timeout):
            self._reader, self._writer = await asyncio.open_connection(
                uri.hostname, uri.port, limit=buffer_size
            )
        self._bare = self._writer

    async def connect_tls(
        self,
        uri: str | ParseResult,
        ssl_context: ssl.SSLContext,
        buffer_size: int,
        connect_timeout: int,
    ) -> None:
        """Go on under TLS; raises OSError or TimeoutError, and the line is of no more use then."""
        if self._bare is None:
            raise RuntimeError("connect_tls() before connect()")
        reader = asyncio.StreamReader(limit=buffer_size)
        protocol = asyncio.StreamReaderProtocol(reader)
        protocol._over_ssl = True  # type: ignore[attr-defined] # asyncio sets it where TLS comes first
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(connect_timeout):
            transport = await loop.start_tls(
                self._bare.transport,
                protocol,
                ssl_context,
                server_hostname=uri if isinstance(uri, str) else uri.hostname,
            )
        if transport is None:
            raise ConnectionResetError("closed during the TLS handshake")
        self._reader = reader
        self._writer = asyncio.StreamWriter(transport, protocol, reader, loop)

    @property
    def socket(self) -> socket.socket | None:
        """The socket; None before there is one."""
        return self._bare.get_extra_info("socket") if self._bare else None

    @property
    def secured(self) -> ssl.SSLObject | None:
        """What TLS knows of the line; None in the clear."""
        return self._writer.get_extra_info("ssl_object") if self._writer else None

    def write(self, payload: bytes) -> None:
        """Hand bytes over for sending."""
        self._open().write(payload)

    def writelines(self, payload: list[bytes]) -> None:
        """Hand pieces over for sending, one after the other."""
        self._open().writelines(payload)

    async def read(self, buffer_size: int) -> bytes:
        """Return what has come, at most so many bytes; none at the end."""
        return await self._reader.read(buffer_size) if self._reader else b""

    async def readline(self) -> bytes:
        """Return a line with its end."""
        return await self._reader.readline() if self._reader else b""

    async def drain(self) -> None:
        """Wait until there is room for more."""
        await self._open().drain()

    async def wait_closed(self) -> None:
        """Wait until it is closed."""
        if self._writer is not None:
            await self._writer.wait_closed()

    def close(self) -> None:
        """Close it."""
        if self._writer is not None:
            self._writer.close()

    def at_eof(self) -> bool:
        """Whether all is read that will ever come."""
        return self._reader is None or self._reader.at_eof()

    def __bool__(self) -> bool:
        return self._writer is not None

    def _open(self) -> asyncio.StreamWriter:
        if self._writer is None:
            raise ConnectionError("not connected")
        return self._writer
