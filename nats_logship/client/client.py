"""A client of nats-py for one connection to one server. It never reconnects.

This is the only module that overrides or uses internals of nats-py (2.16); `pyproject.toml` pins
one minor version. It changes nothing in nats-py's modules and classes. CONTRIBUTING.md lists what
could be reported to nats-py. What we override or use, and why:

`_read_loop`, `_pings_outstanding`, `_io_reader.feed_data`
    Cuts messages by `parser` as soon as the socket is read, 256 KiB at a time: 2.2 us of CPU
    instead of 6.1 for a message of 700 bytes, 410 instead of 590 for 1 MiB. A message that comes
    alone wakes no task to read it. Any byte counts as a sign of life. Unreadable bytes end the
    connection; nats-py only stops reading.
`_process_msg`, `_process_ping`, `_process_pong`, `_process_err`
    Our loop calls them as nats-py's parser does.
`_remove_sub`, `Subscription._id`
    A tap ends with its subscription.
`_send_unsubscribe`, `_send_command`
    The end of a pull needs no flush of its own: it leaves with the next command. All programs
    together take a fifth less CPU at a steady rate.
`_send_publish`, `_flush_pending`
    Commands leave together at the end of a round of the event loop; nats-py wakes a task for them.
    Writes a large payload to the socket without copies: a round is in memory once, not three times,
    and costs the shipper a fifth less CPU.
`_send_ping`
    nats-py sends a PING before pending messages, so that a flush ends too early.
`_process_info`, `_public_nkey`, `_transport`
    Sends nothing without TLS if TLS is required. nats-py never holds a key. The kernel ends dead
    connections.
`_process_op_err`, `_pending`, `_pending_data_size`
    Ends a dead connection at once. nats-py first sends pending output, which fails, and then calls
    no callback.
"""

import asyncio
import json
import secrets
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from nats_logship.client.access import Access, without_password
from nats_logship.client.credentials import ClientCredentials
from nats_logship.client.parser import Control, Parser, Received
from nats_logship.wire.delivery import RawMessage

DIRECT_BYTES = 16 * 1024
"""Payloads of this size and more go straight to the socket; smaller ones are gathered."""
CONNECT_TIMEOUT = 3
"""Seconds for each step of connecting."""
NO_TLS = "it offers no TLS, and TLS is required"

_READ_BYTES = 256 * 1024  # nats-py reads 32 KiB
_PING_EVERY = 5  # seconds
_MAX_PINGS = 24  # without a byte from the server: on a slow network they wait behind a round
_MAX_UNACKNOWLEDGED = 15  # seconds without an acknowledgement of TCP
_CLOSE_WITHIN = 1.0  # seconds
_END = b"\r\n"
_BLANKS = str.maketrans("\r\n", "  ")
_NOBODY = b"NATS/1.0 503"
# a malformed line, an INFO of another shape, a PONG for a flush that has timed out
_UNREADABLE = (
    *(ValueError, TypeError, AttributeError, LookupError),
    *(RecursionError, asyncio.InvalidStateError),
)

Tap = Callable[[RawMessage], None]
"""Called with each message at once, in order; it must neither raise nor wait."""


class BrokerClient(Client):
    """Sends and receives large messages without copies, and reports when the connection is lost."""

    _transport: Any

    def __init__(self, server: str, access: Access, credentials: ClientCredentials) -> None:
        """Remember the server; `credentials` is the content of the files of `access` now."""
        super().__init__()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved when the connection has ended, or `leave` was called."""
        self.is_broker = False
        """Whether the server has sent the INFO of a NATS server."""
        self.is_clustered = False
        self.taps: dict[int, Tap] = {}
        self.access = access
        self._received = 0  # bytes
        self._parser = Parser()
        self._items: asyncio.Queue[Received | Control | None] = asyncio.Queue()  # None: the end
        self._failure: Exception | None = None  # what ended the connection
        self._is_flush_due = False
        self._answers = ""  # our inbox for answers, subscribed to with the first request
        self._waiting: dict[str, asyncio.Future[RawMessage]] = {}  # by the last token of the inbox
        self._server = server if "://" in server else f"nats://{server}"
        self._credentials = credentials
        self._wants_tls = access.wants_tls or urlsplit(self._server).scheme == "tls"
        if credentials.key is not None:
            self._public_nkey = credentials.key.public

    async def open(self, on_error: Callable[[Exception], Awaitable[None]], **options: Any) -> None:
        """Connect; `options` are for `Client.connect`. Raises OSError or nats.errors.Error.

        Calls `on_error` with each later error.
        """
        failed: list[Exception] = []

        async def note(error: Exception) -> None:
            failed.append(error)
            await on_error(error)

        try:
            await self._open(error_cb=note, **options)
        except BaseException as error:
            self._hang_up()  # nats-py's close() would never return after a failure of TLS
            if isinstance(error, nats.errors.NoServersError):
                raise failed[0] from None  # the cause
            if isinstance(error, ConnectionError | AttributeError) and self._wants_tls:
                # in TLS 1.3 the server rejects our certificate after the handshake
                raise ssl.SSLError(1, "hung up; it may want another certificate") from None
            if isinstance(error, _UNREADABLE) and not isinstance(error, OSError):
                raise nats.errors.Error("its INFO cannot be used") from error
            raise

    async def _open(self, **options: Any) -> None:
        access, key, token = self.access, self._credentials.key, self._credentials.token
        context = self._credentials.tls
        if context is None and self._wants_tls:
            context = ssl.create_default_context()
        await self.connect(
            servers=[self._server],
            allow_reconnect=False,
            # by default nats-py repeats its first connect 60 times, 2 s each
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_TIMEOUT,
            ping_interval=_PING_EVERY,
            max_outstanding_pings=_MAX_PINGS,
            pending_size=0,
            tls=context,
            tls_handshake_first=access.tls_first,
            tls_hostname=access.tls_name or None,
            user=access.user or None,
            password=access.password or None,
            signature_cb=key.sign if key else None,
            user_jwt_cb=(lambda: bytearray(token.encode())) if token else None,
            closed_cb=self._on_end,
            disconnected_cb=self._on_end,
            **options,
        )
        if self.tls is not None:  # otherwise asyncio logs a warning when the connection ends
            self._transport._io_writer.transport.get_protocol()._over_ssl = True

    async def _on_end(self) -> None:
        self.leave()

    def leave(self) -> None:
        """Use this client no more: pending requests end."""
        if not self.lost.done():
            self.lost.set_result(None)

    @property
    def is_usable(self) -> bool:
        """Whether requests may be sent."""
        return bool(self.is_connected) and not self.lost.done()

    def abandon(self) -> None:
        """Leave, and drop pending output, also in the kernel."""
        self.leave()
        writer = self._transport._bare_io_writer
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    @property
    def incoming(self) -> int:
        """All bytes received so far while a message is incomplete, else 0."""
        return self._received if self._parser.is_amid_message else 0

    async def wait_for_any(self, futures: "set[asyncio.Future[Any]]", patience: float) -> None:
        """Wait until one is done, or until no byte of a message has come for `patience` seconds."""
        while True:
            before = self.incoming
            done, _ = await asyncio.wait(
                futures, timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
            if done or self.incoming <= before:
                return

    async def end(self) -> None:
        """Send pending output and close the connection, within a second: it may be dead."""
        try:
            async with asyncio.timeout(_CLOSE_WITHIN):
                await self.close()
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        if self.is_reached:
            self._transport._bare_io_writer.close()

    @property
    def is_reached(self) -> bool:
        """Whether a server has accepted the TCP connection."""
        return self._transport is not None and self._transport._bare_io_writer is not None

    @property
    def address(self) -> str:
        """The server's address, without a password."""
        return without_password(self._server)

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The TLS of the connection, None without."""
        found: ssl.SSLObject | None = self._transport._io_writer.get_extra_info("ssl_object")
        return found

    async def tap(self, subject: str, tap: Tap) -> Subscription:
        """Subscribe; `tap` receives each message at once, until the subscription ends."""
        subscription = await self.subscribe(subject)
        self.taps[subscription._id] = tap
        return subscription

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self.taps.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    async def _send_unsubscribe(self, sid: int, limit: int = 0) -> None:
        await self._send_command(b"UNSUB %d\r\n" % sid)

    async def ask(
        self, subject: str, payload: bytes, headers: dict[str, str] | None
    ) -> "asyncio.Future[RawMessage]":
        """Publish a request at once, and return the future of its answer.

        That ends with `NoRespondersError` if nobody subscribes to the subject.
        """
        if not self._answers:
            self._answers = self.new_inbox()
            await self.tap(f"{self._answers}.*", self._take_answer)
        token = secrets.token_hex(8)
        waiting = self._waiting[token] = asyncio.get_running_loop().create_future()
        waiting.add_done_callback(lambda _: self._waiting.pop(token, None))
        await self.publish(subject, payload, f"{self._answers}.{token}", headers)
        return waiting

    def _take_answer(self, message: RawMessage) -> None:
        waiting = self._waiting.get(message.subject.rpartition(".")[2])
        if waiting is None or waiting.done():
            return
        if message.head.startswith(_NOBODY):
            waiting.set_exception(nats.errors.NoRespondersError())
        else:
            waiting.set_result(message)

    async def _read_loop(self) -> None:
        error: Exception = nats.errors.UnexpectedEOF()
        feeding = asyncio.ensure_future(self._feed())
        try:
            while (item := await self._items.get()) is not None:
                await self._take(item)
        except (OSError, *_UNREADABLE) as caught:
            error = caught
        finally:
            self.leave()  # also after a defect, which asyncio logs
            feeding.cancel()
        await self._process_op_err(self._failure or error)

    async def _feed(self) -> None:
        """Have what arrives go to `_receive`, until the connection ends."""
        reader = self._transport._io_reader
        reader.feed_data = self._receive
        try:
            while before := await reader.read(_READ_BYTES):  # what has arrived so far
                self._receive(before)
        except OSError as error:
            self._failure = self._failure or error
        finally:
            self._items.put_nowait(None)

    def _receive(self, piece: bytes) -> None:
        if self._failure is not None:
            return
        self._received += len(piece)
        self._pings_outstanding = 0
        try:
            for item in self._parser.read(piece):
                if isinstance(item, Received) and (tap := self.taps.get(item.subscription)):
                    tap(item.message)
                else:
                    self._items.put_nowait(item)
        except _UNREADABLE as error:
            self._failure = error
            self._items.put_nowait(None)

    async def _take(self, item: Received | Control) -> None:
        match item:
            case Received(number, (subject, reply, head, data)):
                to, back = (t.encode("utf-8", "surrogateescape") for t in (subject, reply))
                with suppress(UnicodeDecodeError):  # we subscribe to no such subject
                    await self._process_msg(number, to, back, data, head)
            case Control("PING"):
                await self._process_ping()
            case Control("PONG"):
                await self._process_pong()
            case Control("-ERR", text):
                await self._process_err(text.decode("utf-8", "replace").lower())
            case Control("INFO", text):
                await self._process_info(json.loads(text))
            case Control():  # +OK
                pass

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Take the server's first line, before anything is sent."""
        self.is_broker = True
        if initial_connection:
            self._keep_alive(self._transport._bare_io_writer.get_extra_info("socket"))
        if initial_connection and self._wants_tls and not self.access.tls_first:
            if not (info.get("tls_required") or info.get("tls_available")):
                raise ssl.SSLError(1, NO_TLS)
            info["tls_required"] = True  # nats-py starts TLS only if the server requires it
        await super()._process_info(info, initial_connection)
        self.is_clustered = bool(info.get("cluster"))

    @staticmethod
    def _keep_alive(sock: socket.socket) -> None:
        """Have the kernel end the connection, also an idle one, when the other machine is gone."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PING_EVERY)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PING_EVERY)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _MAX_UNACKNOWLEDGED * 1000)

    async def _process_op_err(self, e: Exception) -> None:
        self._pending, self._pending_data_size = [], 0
        await super()._process_op_err(e)

    async def _send_publish(
        self,
        subject: str,
        reply: str,
        payload: bytes,
        payload_size: int,
        headers: dict[str, Any] | None,
    ) -> None:
        verb, block = ("PUB", b"") if headers is None else ("HPUB", _header_block(headers))
        sizes = f"{len(block)} {len(block) + payload_size}" if block else f"{payload_size}"
        command = f"{verb} {subject} {reply} {sizes}\r\n".encode()
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += payload_size
        if payload_size < DIRECT_BYTES:
            await self._send_command(b"".join((command, block, payload, _END)))
            await self._flush_pending()
        else:
            self._write_pending(command, block, payload, _END)

    async def wait_until_sent(self) -> None:
        """Wait while much of what was published is still to be sent; raises OSError."""
        await self._transport.drain()

    async def _flush_pending(self, force_flush: bool = False) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._pending and self.is_connected:
            self._write_pending()

    async def _send_ping(self, future: "asyncio.Future[None] | None" = None) -> None:
        if self._transport is not None:
            self._write_pending()
        await super()._send_ping(future)

    def _write_pending(self, *more: bytes) -> None:
        waiting, self._pending, self._pending_data_size = self._pending, [], 0
        self._transport.writelines([*waiting, *more])


def _header_block(headers: Mapping[str, str]) -> bytes:
    """Return the headers' bytes (ADR-4), with blanks for line breaks, which clients may have sent.

    Raises ValueError for a name with a line break.
    """
    if any("\n" in name or "\r" in name for name in headers):
        raise ValueError(f"a line break in the name of a header: {headers!r}")
    lines = [f"{name}: {value.translate(_BLANKS)}\r\n" for name, value in headers.items()]
    return "".join(["NATS/1.0\r\n", *lines, "\r\n"]).encode()
