"""The line to a server under nats-py: a socket, in the clear until it is secured."""

import asyncio
import ssl
from urllib.parse import ParseResult

from nats.aio.transport import TcpTransport

__all__ = ["Line"]


class Line(TcpTransport):
    """A line that, unlike nats-py's, reads as much at a time under TLS as without, and ends without a complaint."""

    async def connect_tls(
        self,
        uri: str | ParseResult,
        ssl_context: ssl.SSLContext,
        buffer_size: int,
        connect_timeout: int,
    ) -> None:
        """Go on under TLS; raises OSError or TimeoutError, and the line is of no more use then."""
        bare = self._bare_io_writer
        if bare is None:
            raise RuntimeError("connect_tls() before connect()")
        reader = asyncio.StreamReader(limit=buffer_size)
        protocol = asyncio.StreamReaderProtocol(reader)
        protocol._over_ssl = True  # type: ignore[attr-defined] # asyncio sets it where TLS comes first
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(connect_timeout):
            transport = await loop.start_tls(
                bare.transport,
                protocol,
                ssl_context,
                server_hostname=uri if isinstance(uri, str) else uri.hostname,
            )
        if transport is None:
            raise ConnectionResetError("closed during the TLS handshake")
        self._io_reader = reader
        self._io_writer = asyncio.StreamWriter(transport, protocol, reader, loop)
