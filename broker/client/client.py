"""One client of nats-py for one connection to one server: made, secured, and never reconnected.

Talks to no server in the clear where TLS is asked for: nats-py itself would, when the server (or somebody between)
offers none.

What of nats-py's internals (2.16, one minor version at a time) is overridden, by what for:

| names | why, and what was measured |
|---|---|
| `_ps` and the parser, `_remove_sub` (receiving.py) | a message costs 1.5 microseconds and two copies of its bytes, not 15 and five |
| `_send_publish`, `_send_ping` (sending.py) | a round of some MiB costs its size once in memory, not three times, and a fifth less of the shipper's processor time |
| `_connect_to_server`, `_process_info`, `_connect_command`, `_public_nkey` | nothing is sent in the clear where TLS is wanted; keys that nats-py does not hold; the kernel ends dead connections |
| `_pings_outstanding`, `_process_pong` | every byte counts as a sign of life; the answer to a flush that was given up |
| `_process_op_err`, `_pending`, `_pending_data_size` | a dead connection ends without sending first |
| `_build_message`, `_process_headers` | subjects and headers that are not ASCII |
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import ParseResult, urlsplit

import nats.aio.client
import nats.errors
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport

from broker.client.access import Access, public
from broker.client.credentials import ClientCredentials
from broker.client.receiving import ReceivingClient
from broker.client.sending import SendingClient

__all__ = ["CONNECT_TIMEOUT", "BrokerClient", "HungUp", "NoTls"]

CONNECT_TIMEOUT = 3
"""Seconds for each step of a connect."""

_PING_EVERY = 5  # seconds
_MOST_PINGS = 5  # without a byte from the server before the connection is given up, for what a slow line holds
_MOST_UNACKNOWLEDGED = (
    15  # seconds without a sign of the server's kernel, which ends the connection
)
_CLOSE_WITHIN = 1.0  # seconds

# nats-py reads 32 KiB at a time, less than a message; with 256 KiB receiving costs a third less CPU (bench/, 2.16.0)
nats.aio.client.DEFAULT_BUFFER_SIZE = 256 * 1024


class NoTls(nats.errors.Error):
    """The server would talk in the clear only; nothing was sent to it."""


class HungUp(nats.errors.Error):
    """The server ended the connection after the TLS handshake, without a word."""


class _Socket(TcpTransport):
    """A connection that the kernel ends when the other machine is gone, also where nothing is to be sent."""

    _io_writer: asyncio.StreamWriter  # None until it is connected

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        await super().connect(uri, buffer_size, connect_timeout)
        line: socket.socket = self._io_writer.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PING_EVERY)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PING_EVERY)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _MOST_UNACKNOWLEDGED * 1000)

    async def connect_tls(
        self,
        uri: str | ParseResult,
        ssl_context: ssl.SSLContext,
        buffer_size: int,
        connect_timeout: int,
    ) -> None:
        plain = self._io_writer
        await super().connect_tls(uri, ssl_context, buffer_size, connect_timeout)
        transport: Any = self._io_writer.transport
        if transport is None:
            self._io_writer = plain
            raise ConnectionResetError("closed during the TLS handshake")
        # asyncio sets it where TLS comes first, and otherwise logs a warning at the end of the connection
        if (protocol := transport.get_protocol()) is not None:
            protocol._over_ssl = True

    def close(self) -> None:
        super().close()  # type: ignore[no-untyped-call]

    @property
    def unsent(self) -> int:
        """How many bytes wait here for the kernel to take them."""
        return self._io_writer.transport.get_write_buffer_size()

    @property
    def tls(self) -> ssl.SSLObject | None:
        """What TLS knows of the connection; None in the clear."""
        return self._io_writer.get_extra_info("ssl_object") if self else None


class BrokerClient(ReceivingClient, SendingClient):
    """A client that outlives what anybody may publish: nats-py's read loop would end, in silence, at text that is not UTF-8."""

    def __init__(
        self,
        server: str,
        access: Access,
        credentials: ClientCredentials,
    ) -> None:
        """Remember whom to connect to and how; `credentials` is what the files of `access` hold now."""
        super().__init__()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved when the connection has ended, or nothing more is to be asked here."""
        self._socket = _Socket()
        self.is_clustered = False
        """Whether the server says that it is one of a cluster."""
        self._server = server if "://" in server else f"nats://{server}"
        self._credentials = credentials
        self._user, self._password = access.user or None, access.password or None
        self._tls_first = access.tls_first
        self._tls_name = access.tls_name or None
        self._wants_tls = access.wants_tls or urlsplit(self._server).scheme == "tls"

    async def open(self, on_error: Callable[[Exception], Awaitable[None]], **options: Any) -> None:
        """Connect, with what else `Client.connect` takes; raises OSError, TimeoutError or nats-py's errors.

        `on_error` is told what goes wrong later.
        """
        failed: list[Exception] = []

        async def note(error: Exception) -> None:
            failed.append(error)
            await on_error(error)

        try:
            await self._open(
                error_cb=note, closed_cb=self._ended, disconnected_cb=self._ended, **options
            )
        except BaseException as error:
            secured = self._socket.tls is not None
            self._socket.close()  # close() of the client would wait for ever where TLS failed
            if isinstance(error, nats.errors.NoServersError):
                raise failed[0] from None  # why, rather than that there is no server left to try
            if isinstance(error, ConnectionError) and secured:
                # with TLS 1.3 our certificate is judged after the handshake, and the verdict may go down with the line
                raise HungUp("hung up") from None
            raise

    async def _open(self, **options: Any) -> None:
        key = self._credentials.key
        context = self._credentials.tls
        if context is None and self._wants_tls:
            context = ssl.create_default_context()
        await self.connect(
            servers=[self._server],
            allow_reconnect=False,
            # nats-py holds on to its first connect all the same, 60 attempts of 2 s unless told otherwise
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_TIMEOUT,
            ping_interval=_PING_EVERY,
            max_outstanding_pings=_MOST_PINGS,
            pending_size=0,
            tls=context,
            tls_handshake_first=self._tls_first,
            tls_hostname=self._tls_name,
            user=self._user,
            password=self._password,
            signature_cb=key.sign if key else None,
            user_jwt_cb=self._token if self._credentials.token else None,
            **options,
        )

    async def _ended(self) -> None:
        self.leave()

    def leave(self) -> None:
        """Say that nothing more is to be asked here: what is under way ends."""
        if not self.lost.done():
            self.lost.set_result(None)

    @property
    def is_usable(self) -> bool:
        """Whether something may be asked here."""
        return bool(self.is_connected) and not self.lost.done()

    async def end(self) -> None:
        """Send what is still in hand and close the connection, within a second: nobody may be there to take it."""
        try:
            async with asyncio.timeout(_CLOSE_WITHIN):
                await self.close()
        finally:
            self._socket.close()

    @property
    def address(self) -> str:
        """Where it is connected to, without a password."""
        return public(self._server)

    @property
    def certificate(self) -> Mapping[str, Any]:
        """What the server's certificate says, as `SSLObject.getpeercert` tells it; empty in the clear."""
        secured = self._socket.tls
        return (secured.getpeercert() or {}) if secured is not None else {}

    def _token(self) -> bytearray:
        return bytearray(self._credentials.token.encode())

    async def _connect_to_server(self, s: Any) -> None:
        self._transport = self._socket = _Socket()
        await self._socket.connect(s.uri, nats.aio.client.DEFAULT_BUFFER_SIZE, CONNECT_TIMEOUT)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        # a server may take TLS without asking for it; nats-py begins with TLS only where it is asked for
        if self._wants_tls and info.get("tls_available"):
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)
        self.is_clustered = bool(info.get("cluster"))

    def _connect_command(self) -> bytes:
        # the last moment before anything of ours is sent, on the connection that it will be sent on
        if self._wants_tls and self._socket.tls is None:
            raise NoTls("offers no TLS")
        if self._credentials.key is not None and not self._credentials.token:
            self._public_nkey = self._credentials.key.public
        command: bytes = super()._connect_command()
        return command

    async def _send_ping(self, future: "asyncio.Future[None] | None" = None) -> None:
        # what is on its way out is far ahead of a PONG; a connection that takes nothing is ended by the kernel
        if self._socket.unsent:
            self._pings_outstanding = 0
        await super()._send_ping(future)

    async def _process_pong(self) -> None:
        # nats-py stops to read, and says nothing of it, over the answer to a `flush` that was given up
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _process_op_err(self, e: Exception) -> None:
        # nats-py would first send what is pending: on a dead line that fails, and nobody would hear of the end
        self._pending, self._pending_data_size = [], 0
        await super()._process_op_err(e)

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        # the subject of a message may be no UTF-8, at which nats-py's read loop ends
        message: Msg
        try:
            message = super()._build_message(sid, subject, reply, data, headers)
        except UnicodeDecodeError:
            message = super()._build_message(sid, b"", reply, data, headers)
            message.subject = subject.decode(errors="surrogateescape")
        return message

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        # so may a status be
        try:
            found: dict[str, str] | None = await super()._process_headers(headers)
        except UnicodeDecodeError:
            return None
        return found
