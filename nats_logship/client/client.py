"""One client of nats-py for one connection to one server: secured, and never reconnected.

This module alone overrides or uses internals of nats-py, so one minor version at a time (2.16).
It changes nothing in nats-py's modules and classes. What could be reported: docs/decisions.md.

`_read_loop`, `_pings_outstanding`
    The loop reads pieces of 256 KiB, and our parser cuts them. A message of 700 bytes for a tap
    costs 2.2 microseconds of processor time instead of 6.1, one of 1 MiB 410 instead of 590. A
    subject may hold white space that does not end a word of the protocol. Every byte from the
    server is a sign of life. Bytes that cannot be read end the connection; nats-py's loop only
    stops reading.
`_process_msg`, `_process_ping`, `_process_pong`, `_process_err`
    The loop calls them as nats-py's parser does.
`_remove_sub`, `Subscription._id`
    A tap ends with its subscription.
`_send_unsubscribe`, `_send_command`
    The end of a pull is sent with the next command, without a flush of its own: with commits of
    several pulls at once, all programs need a fifth less processor time at a steady rate.
`_send_publish`, `_send_ping`
    A round of some MiB is in memory once, not three times, and costs a fifth less of the shipper's
    processor time. A PING is sent after what was published before it.
`_process_info`, `_public_nkey`, `_transport`
    Nothing is sent in the clear if TLS is wanted; nats-py does not hold our keys; the kernel ends
    dead connections.
`_process_op_err`, `_pending`, `_pending_data_size`
    A dead connection ends at once. nats-py first sends what is pending, fails, and tells nobody.
"""

import asyncio
import json
import os
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

from nats_logship.client.access import Access, public
from nats_logship.client.credentials import ClientCredentials
from nats_logship.client.parser import Control, Parser, Received
from nats_logship.wire.delivery import RawMessage

DIRECT_BYTES = 16 * 1024
"""From this size on a payload is written straight to the socket; nats-py gathers smaller ones."""

_CONNECT_TIMEOUT = 3  # seconds for each step
_PING_EVERY = 5  # seconds
_MOST_PINGS = 24  # without a byte from the server: they wait behind a round on a slow line
_MOST_UNACKNOWLEDGED = 15  # seconds without a sign of the server's kernel: ours ends the connection
_CLOSE_WITHIN = 1.0  # seconds
_END = b"\r\n"
_NO_TLS = "it offers no TLS, and nothing of ours goes in the clear"
_NOT_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}  # of OpenSSL

_READ_BYTES = 256 * 1024  # at a time; nats-py reads 32 KiB

# Malformed, an INFO of another shape, the PONG for a flush that was given up
_INVALID = (ValueError, TypeError, AttributeError, LookupError)
_UNREADABLE = (*_INVALID, RecursionError, asyncio.InvalidStateError)

Tap = Callable[[RawMessage], None]
"""Told of every message at once, in order; it must not raise, and not wait."""


class BrokerClient(Client):
    """Sends and receives large messages without copies, and reports when the connection is lost."""

    _transport: Any

    def __init__(self, server: str, access: Access, credentials: ClientCredentials) -> None:
        """Remember the server; `credentials` is what the files of `access` hold now."""
        super().__init__()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved when the connection has ended, or nothing more is to be asked here."""
        self.is_broker = False
        """Whether a NATS server has said that it is one."""
        self.is_clustered = False
        """Whether the server says that it is one of a cluster."""
        self.received = 0
        """How many bytes have come."""
        self.taps: dict[int, Tap] = {}
        self._parser = Parser()
        self._server = server if "://" in server else f"nats://{server}"
        self.access, self._credentials = access, credentials
        self._wants_tls = access.wants_tls or urlsplit(self._server).scheme == "tls"
        if credentials.key is not None:
            self._public_nkey = credentials.key.public

    async def open(self, on_error: Callable[[Exception], Awaitable[None]], **options: Any) -> None:
        """Connect; `options` are for `Client.connect`. Raises OSError or nats.errors.Error.

        `on_error` is told what goes wrong later.
        """
        failed: list[Exception] = []

        async def note(error: Exception) -> None:
            failed.append(error)
            await on_error(error)

        try:
            await self._open(error_cb=note, **options)
        except BaseException as error:
            self._hang_up()  # close() of the client would wait for ever where TLS failed
            if isinstance(error, nats.errors.NoServersError):
                raise failed[0] from None  # why, rather than that there is no server left to try
            if isinstance(error, ConnectionError | AttributeError) and self._wants_tls:
                # TLS 1.3 judges our certificate after the handshake; the verdict may get lost
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
            # nats-py repeats its first connect all the same: by default 60 attempts, 2 s each
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=_CONNECT_TIMEOUT,
            ping_interval=_PING_EVERY,
            max_outstanding_pings=_MOST_PINGS,
            pending_size=0,
            tls=context,
            tls_handshake_first=access.tls_first,
            tls_hostname=access.tls_name or None,
            user=access.user or None,
            password=access.password or None,
            signature_cb=key.sign if key else None,
            user_jwt_cb=(lambda: bytearray(token.encode())) if token else None,
            closed_cb=self._ended,
            disconnected_cb=self._ended,
            **options,
        )
        if self.tls is not None:  # else asyncio logs a warning at its end
            self._transport._io_writer.transport.get_protocol()._over_ssl = True

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

    def abandon(self) -> None:
        """Leave, and drop what is still to be sent, in the kernel as well."""
        self.leave()
        line = self._transport._bare_io_writer
        line.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        line.transport.abort()

    @property
    def incoming(self) -> int:
        """How many bytes have come in all while the rest of a message is still to come, else 0."""
        return self.received if self._parser.is_amid_message else 0

    async def end(self) -> None:
        """Send what is pending and close the connection, within a second: it may be dead."""
        try:
            async with asyncio.timeout(_CLOSE_WITHIN):
                await self.close()
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._transport is not None and self._transport._bare_io_writer is not None:
            self._transport._bare_io_writer.close()

    @property
    def is_reached(self) -> bool:
        """Whether somebody took the connection, whatever came of it."""
        return self._transport is not None and self._transport._bare_io_writer is not None

    @property
    def address(self) -> str:
        """Where it is connected to, without a password."""
        return public(self._server)

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The TLS of the connection; None in the clear."""
        found: ssl.SSLObject | None = self._transport._io_writer.get_extra_info("ssl_object")
        return found

    async def tap(self, subject: str, tap: Tap) -> Subscription:
        """Subscribe; `tap` gets each message at once, until the subscription ends."""
        subscription = await self.subscribe(subject)
        self.taps[subscription._id] = tap
        return subscription

    async def _send_unsubscribe(self, sid: int, limit: int = 0) -> None:
        # nats-py flushes: a write and a wake-up of the server for each pull
        await self._send_command(b"UNSUB %d\r\n" % sid)

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self.taps.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    async def _read_loop(self) -> None:
        error: Exception = nats.errors.UnexpectedEOF()
        try:
            while not self.is_closed and (piece := await self._transport.read(_READ_BYTES)):
                self.received += len(piece)
                self._pings_outstanding = 0  # a server that sends is alive, however far its PONG is
                for item in self._parser.read(piece):
                    if isinstance(item, Received) and (tap := self.taps.get(item.subscription)):
                        tap(item.message)
                    else:
                        await self._take(item)
        except (OSError, *_UNREADABLE) as caught:
            error = caught
        finally:
            self.leave()  # also after a defect, which asyncio logs
        await self._process_op_err(error)

    async def _take(self, item: Received | Control) -> None:
        match item:
            case Received(number, (subject, reply, head, data)):
                with suppress(UnicodeDecodeError):  # no subscription of ours is for such a subject
                    await self._process_msg(number, _raw(subject), _raw(reply), data, head)
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
        # the first word of the server, before anything of ours is sent
        self.is_broker = True
        if initial_connection:
            self._keep_alive(self._transport._bare_io_writer.get_extra_info("socket"))
        if initial_connection and self._wants_tls and not self.access.tls_first:
            if not (info.get("tls_required") or info.get("tls_available")):
                raise ssl.SSLError(1, _NO_TLS)
            info["tls_required"] = True  # nats-py begins with TLS only where it is asked for
        await super()._process_info(info, initial_connection)
        self.is_clustered = bool(info.get("cluster"))

    @staticmethod
    def _keep_alive(line: socket.socket) -> None:
        """Have the kernel end the connection when the other machine is gone, also while idle."""
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PING_EVERY)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PING_EVERY)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _MOST_UNACKNOWLEDGED * 1000)

    async def _process_op_err(self, e: Exception) -> None:
        # nats-py first sends what is pending: on a dead connection that fails, and nobody is told
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
        if payload_size < DIRECT_BYTES or headers is None or self._transport is None:
            await super()._send_publish(subject, reply, payload, payload_size, headers)
            return
        block = _header_block(headers)
        size = len(block) + payload_size
        command = f"HPUB {subject} {reply} {len(block)} {size}\r\n".encode()
        # all of it is written before anything is awaited: no other message may come in between
        self._write_pending(command, block, payload, _END)
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += payload_size
        await self._transport.drain()

    async def _send_ping(self, future: "asyncio.Future[None] | None" = None) -> None:
        # nats-py writes it ahead of what is pending, so a flush would end before that is sent
        if self._transport is not None:
            self._write_pending()
        await super()._send_ping(future)

    def _write_pending(self, *more: bytes) -> None:
        waiting, self._pending, self._pending_data_size = self._pending, [], 0
        self._transport.writelines([*waiting, *more])


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def why_not(error: Exception, client: BrokerClient) -> str:
    """Return what kept a client out, for the person who can mend it.

    There is no broker only where nobody takes the connection. What takes it is a broker once it has
    said so; a port of another kind, or one that begins with TLS, does not.
    """
    text = str(error).removeprefix("nats: ").strip("'") or type(error).__name__
    who = f"the {'broker' if client.is_broker else 'server'} at {client.address}"
    if isinstance(error, ssl.SSLError):
        return f"{who} answers, but {_of_tls(error, text)}"
    if not client.is_reached:
        return f"no broker at {client.address}: {_of_network(error, text)}"
    if isinstance(error, TimeoutError):
        silent = f"takes the connection and says nothing within {_CONNECT_TIMEOUT} s"
        remedy = "check that --server names the port for clients, or give --tls-first"
        return f"{who} {silent}; {remedy}"
    return f"{who} {_of_broker(client, text)}"


def _of_broker(client: BrokerClient, text: str) -> str:
    if "maximum" in text.lower():
        limits = "raise host_connections or receiver_connections"
        return f"lets no more in: connection limit reached: {text}; {limits}"
    if any(word in text.lower() for word in ("authorization", "authentication")):
        return f"refuses {client.access}: {text}"
    if client.is_broker:
        return f"ended the connection: {text}"
    return f"answers, but not as a broker: {text}; check --server"


def _of_network(error: Exception, text: str) -> str:
    if isinstance(error, TimeoutError):
        return f"no connection within {_CONNECT_TIMEOUT} s"
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number and number > 0 else text


def _of_tls(error: ssl.SSLError, text: str) -> str:
    reason = getattr(error, "reason", "") or ""
    if reason in _NOT_TLS:
        return f"does not begin with TLS ({reason}); check --server, or leave out --tls-first"
    if _NO_TLS in text:
        return (
            f"{_NO_TLS.removeprefix('it ')}; leave out tls:// and the options of TLS, or set it up"
        )
    shown = getattr(error, "verify_message", "") or reason or text
    certificates = "check --server and the certificates (--tls-ca, --tls-cert)"
    return f"the TLS handshake fails: {shown}; {certificates}"


def _header_block(headers: Mapping[str, str]) -> bytes:
    """Return the headers as on the wire (ADR-4); raises ValueError for a line break in one."""
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    if any(line.count("\n") != 1 or line.count("\r") != 1 for line in lines):
        raise ValueError(f"a line break in a header: {headers!r}")
    return "".join(["NATS/1.0\r\n", *lines, "\r\n"]).encode()
