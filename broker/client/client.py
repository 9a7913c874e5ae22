"""One client of nats-py for one connection to one server: made, secured, and never reconnected.

Talks to no server in the clear where TLS is asked for: nats-py itself would, when the server (or somebody between)
offers none.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import nats.aio.client
import nats.errors
from nats.aio.msg import Msg

from broker.client.access import Access
from broker.client.credentials import Credentials
from broker.client.line import Line
from broker.client.pulse import PingingClient
from broker.client.receiving import ReceivingClient
from broker.client.sending import SendingClient
from broker.client.servers import public
from broker.client.trust import CONNECT_TIMEOUT, is_cut_off

__all__ = ["BrokerClient", "HungUp", "NoTls"]

_PING_EVERY = 5  # seconds; a line on which nothing moves any more is given up after two
_END = 1.0  # seconds
_PING_AMONG = 3  # where there are others to go to

# nats-py reads 32 KiB at a time, less than a message; with 256 KiB receiving costs a third less CPU (bench/, 2.16.0)
nats.aio.client.DEFAULT_BUFFER_SIZE = 256 * 1024


class NoTls(nats.errors.Error):
    """The server would talk in the clear only; nothing was sent to it."""


class HungUp(nats.errors.Error):
    """The server ended the line after the TLS handshake, without a word."""


class BrokerClient(ReceivingClient, SendingClient, PingingClient):
    """A client that outlives what anybody may publish: its read loop would end, in silence, at text that is not UTF-8."""

    def __init__(
        self,
        server: str,
        access: Access,
        credentials: Credentials,
        patience: int = CONNECT_TIMEOUT,
        *,
        among: bool = False,
    ) -> None:
        """Remember whom to connect to and how; `credentials` is what the files of `access` hold now.

        Each step of a connect has `patience` seconds. A server `among` others is given up sooner when it falls silent.
        """
        super().__init__()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved when the line has ended, or nothing more is to be asked here."""
        self._line = Line()
        self._patience, self._among = patience, among
        self.known = self.most_known = 0
        """How many addresses of its cluster the server knows of, as it told last, and at most so far."""
        self.is_clustered = False
        """Whether the server says that it is one of a cluster."""
        self._server = server if "://" in server else f"nats://{server}"
        self._credentials = credentials
        self._user, self._password = access.user or None, access.password or None
        self._tls_first = access.tls_first
        self._tls_name = access.tls_name or None
        self._wants_tls = access.wants_tls or urlsplit(self._server).scheme == "tls"

    async def open(self, hear: Callable[[Exception], Awaitable[None]], **options: Any) -> None:
        """Connect, with what else `Client.connect` takes; raises OSError, TimeoutError or nats-py's errors.

        `hear` is told what goes wrong later.
        """
        failed: list[Exception] = []

        async def listen(error: Exception) -> None:
            failed.append(error)
            await hear(error)

        try:
            await self._open(
                error_cb=listen, closed_cb=self._ended, disconnected_cb=self._ended, **options
            )
        except BaseException as error:
            secured = self._is_secured()
            self._abandon()
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
            connect_timeout=self._patience,
            ping_interval=_PING_AMONG if self._among else _PING_EVERY,
            max_outstanding_pings=1,
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
    def is_well(self) -> bool:
        """Whether something may be asked here."""
        return bool(self.is_connected) and not self.lost.done()

    async def end(self) -> None:
        """Send what is still in hand and close the line, within a second: nobody may be there to take it."""
        try:
            async with asyncio.timeout(_END):
                await self.close()
        finally:
            self._abandon()

    def _abandon(self) -> None:
        # close() would wait for ever for the end of a line on which TLS failed
        self._line.close()

    @property
    def address(self) -> str:
        """Where it is connected to, without a password."""
        return public(self._server)

    async def _connect_to_server(self, s: Any) -> None:
        self._transport = self._line = Line()
        await self._line.connect(s.uri, nats.aio.client.DEFAULT_BUFFER_SIZE, self._patience)

    def _token(self) -> bytearray:
        return bytearray(self._credentials.token.encode())

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        # a server may take TLS without asking for it; nats-py begins with TLS only where it is asked for
        if self._wants_tls and info.get("tls_available"):
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)
        self.is_clustered = bool(info.get("cluster"))
        # a server of a cluster says so when a line to another one has come or gone
        self.known = len(info.get("connect_urls") or ())
        self.most_known = max(self.most_known, self.known)
        if self._among and is_cut_off(self.known, self.most_known):
            self.leave()

    def _connect_command(self) -> bytes:
        # the last moment before anything of ours is sent, on the line that it will be sent on
        if self._wants_tls and not self._is_secured():
            raise NoTls("offers no TLS")
        if self._credentials.key is not None and not self._credentials.token:
            self._public_nkey = self._credentials.key.public
        command: bytes = super()._connect_command()
        return command

    async def _process_pong(self) -> None:
        # nats-py stops to read, and says nothing of it, over the answer to a `flush` that was given up
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _process_op_err(self, e: Exception) -> None:
        # close() would first send what is pending: on a dead line that fails, and nobody would hear of the end
        self._pending, self._pending_data_size = [], 0
        await super()._process_op_err(e)

    @property
    def certificate(self) -> Mapping[str, Any]:
        """What the server's certificate says, as `SSLObject.getpeercert` tells it; empty in the clear."""
        secured = self._line.secured
        return (secured.getpeercert() or {}) if secured is not None else {}

    def _is_secured(self) -> bool:
        return self._line.secured is not None

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        message: Msg
        try:
            message = super()._build_message(sid, subject, reply, data, headers)
        except UnicodeDecodeError:
            message = super()._build_message(sid, b"", reply, data, headers)
            message.subject = subject.decode(errors="surrogateescape")
        return message

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        # as nats-py does it, which looks at each character of each name: two thirds of what a small message costs
        found: dict[str, str] = {}
        for line in raw.split(b"\r\n"):
            name, colon, value = line.partition(b":")
            if colon and (known := _header_name(name)) is not None:
                found[known] = value.strip().decode("utf-8", "replace")
        return found

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        try:
            found: dict[str, str] | None = await super()._process_headers(headers)
        except UnicodeDecodeError:
            return None
        return found


@lru_cache(maxsize=1000)
def _header_name(raw: bytes) -> str | None:
    try:
        name = raw.strip().decode("ascii")
    except UnicodeDecodeError:
        return None
    return None if any(sign.isspace() for sign in name) else name
