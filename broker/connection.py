"""The connection to the broker: one client at a time, remade when it is lost.

It never sends anything twice and never reconnects under the feet of its user: whatever was under way when a client
was lost ends in `ConnectionLost`, and only the user can know what to do about it. nats-py's own reconnect is off: its
buffer reorders what was published meanwhile.
"""

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import nats.aio.client
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from broker.answer import ConnectionLost, Rejected, answer_of
from broker.exits import OperatorError

__all__ = ["BrokerAway", "Connection", "ConnectionLost", "Message", "Rejected"]

Message = Msg
Answer = TypeVar("Answer")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between attempts to connect
_PING_EVERY = 5  # seconds; with one outstanding, a half-open connection is given up after two
logger = logging.getLogger(__name__)

# nats-py reads 32 KiB at a time, less than a block; with 256 KiB receiving costs a third less CPU (bench/, 2.16.0)
nats.aio.client.DEFAULT_BUFFER_SIZE = 256 * 1024


class BrokerAway(OperatorError):
    """No broker answers at the addresses given."""


class Connection:
    """A connection that can be used for ever: each call first makes sure that there is a live client."""

    def __init__(self, servers: Sequence[str], name: str, inbox_prefix: str = "_INBOX") -> None:
        """Remember where to connect to; nothing is sent before the first call."""
        self._servers = list(servers)
        self._name = name
        self._inbox_prefix = inbox_prefix
        self._client: Client | None = None
        self._lost: asyncio.Future[None] | None = None
        self._connecting = asyncio.Lock()
        self._complaint = ""
        self.away = ""
        """Why no broker is there for `client` just now; empty while one is, or nobody asks."""

    @property
    def servers(self) -> str:
        """The addresses, for messages to a person: without the passwords that may stand in them."""
        return ", ".join(map(_public, self._servers))

    async def once(self, patience: float = 0.0) -> Client:
        """Return a live client, or raise `BrokerAway` when none answers for `patience` seconds.

        For what a person waits for: commands, and programs that run once.
        """
        give_up = asyncio.get_running_loop().time() + patience
        while True:
            try:
                return await self._connect()
            except (OSError, nats.errors.Error, TimeoutError) as error:
                if asyncio.get_running_loop().time() >= give_up:
                    raise BrokerAway(
                        f"no broker at {self.servers}: {_reason(error, self._complaint)}; "
                        "start one with `logbroker run`, or check --server"
                    ) from None
            await asyncio.sleep(_FIRST_PAUSE)

    async def client(self) -> Client:
        """Return a live client, however long it takes; says once that the broker is away, and once that it is back."""
        pause = _FIRST_PAUSE
        while True:
            try:
                client = await self._connect()
            except (OSError, nats.errors.Error, TimeoutError) as error:
                if not self.away:
                    self.away = _reason(error, self._complaint)
                    logger.warning("broker away at %s: %s; trying again", self.servers, self.away)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            if self.away:
                self.away = ""
                logger.info(
                    "broker at %s is back",
                    _public(client.connected_url.netloc) if client.connected_url else "?",
                )
            return client

    async def _connect(self) -> Client:
        async with self._connecting:
            if self._client is not None and self._client.is_connected:
                return self._client
            await self._drop()
            lost = asyncio.get_running_loop().create_future()
            client = _Client()
            try:
                await client.connect(
                    servers=self._servers,
                    name=self._name,
                    inbox_prefix=self._inbox_prefix,
                    allow_reconnect=False,
                    # nats-py holds on to its first connect all the same, 60 attempts of 2 s unless told otherwise
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=3,
                    ping_interval=_PING_EVERY,
                    max_outstanding_pings=1,
                    pending_size=0,
                    error_cb=self._hear,
                    closed_cb=_resolver(lost),
                    disconnected_cb=_resolver(lost),
                )
            except BaseException:
                await _close(client)  # a connect that failed half-way leaves its socket open
                raise
            self._client, self._lost = client, lost
            return client

    async def _hear(self, error: Exception) -> None:
        self._complaint = str(error)
        logger.debug("nats: %s", error)

    async def _drop(self) -> None:
        if self._client is not None:
            await _close(self._client)
        self._client = None

    async def guard(self, call: Coroutine[Any, Any, Answer], patience: float) -> Answer:
        """Wait for `call`, at most `patience` seconds and no longer than the present client lives.

        Raises `ConnectionLost` when it did not end well; what it sent may have arrived all the same.
        """
        if self._lost is None:
            call.close()
            raise ConnectionLost("not connected")
        work = asyncio.ensure_future(call)
        try:
            either: set[asyncio.Future[Any]] = {work, self._lost}
            await asyncio.wait(either, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ConnectionLost(
                    "connection lost" if self._lost.done() else f"no answer in {patience:g} s"
                )
            return work.result()
        except nats.errors.NoRespondersError:
            raise Rejected(
                503, 0, "nobody listens there: no JetStream, or no such stream"
            ) from None
        except (nats.errors.Error, OSError) as error:
            raise ConnectionLost(str(error) or type(error).__name__) from error
        finally:
            work.cancel()

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        patience: float = 5.0,
    ) -> Message:
        """Send a request and return its answer; raises `ConnectionLost`, or `Rejected` where nobody listens."""
        client = await self.client()
        return await self.guard(
            client.request(
                subject, payload, timeout=patience + 1, headers=dict(headers) if headers else None
            ),
            patience,
        )

    async def ask(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        patience: float = 5.0,
    ) -> dict[str, Any]:
        """Send a request that JetStream answers in JSON, a publish among them; raises `Rejected` for an error answer."""
        return answer_of((await self.request(subject, payload, headers, patience)).data)

    async def api(
        self, name: str, body: Mapping[str, Any] | None = None, patience: float = 5.0
    ) -> dict[str, Any]:
        """Call the JetStream API, e.g. `api("STREAM.INFO.LOGS")`; raises `Rejected` for an error answer."""
        payload = b"" if body is None else json.dumps(body).encode()
        return await self.ask(f"$JS.API.{name}", payload, patience=patience)

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Hand a message to the present client; raises `ConnectionLost` when there is none to take it."""
        client = self._client
        if client is None or not client.is_connected:
            raise ConnectionLost("not connected")
        try:
            await client.publish(
                subject, payload, reply=reply, headers=dict(headers) if headers else None
            )
        except (nats.errors.Error, OSError) as error:
            raise ConnectionLost(str(error) or type(error).__name__) from error

    async def subscribe(
        self,
        subject: str,
        callback: Callable[[Message], Awaitable[None]],
        pending_bytes: int = 64 * 1024 * 1024,
    ) -> Subscription:
        """Subscribe on the present client; the subscription ends with it."""
        client = await self.client()
        try:
            return await client.subscribe(
                subject, cb=callback, pending_msgs_limit=-1, pending_bytes_limit=pending_bytes
            )
        except (nats.errors.Error, OSError) as error:
            raise ConnectionLost(str(error) or type(error).__name__) from error

    def new_inbox(self) -> str:
        """Return a subject of our own for answers."""
        if self._client is None:
            raise ConnectionLost("not connected")
        return self._client.new_inbox()

    async def close(self) -> None:
        """Send what is still in hand and end; a broker that is away is no error."""
        await self._drop()


class _Client(Client):
    """A client that outlives what anybody may publish: its read loop would end, in silence, at text that is not UTF-8."""

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

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        try:
            found: dict[str, str] | None = await super()._process_headers(headers)
        except UnicodeDecodeError:
            return None
        return found


def _resolver(future: "asyncio.Future[None]") -> Callable[[], Coroutine[Any, Any, None]]:
    async def resolve() -> None:
        if not future.done():
            future.set_result(None)

    return resolve


async def _close(client: Client) -> None:
    with suppress(nats.errors.Error, OSError, TimeoutError):
        await client.close()


def _reason(error: BaseException, complaint: str) -> str:
    if isinstance(error, nats.errors.NoServersError) and complaint:
        return complaint  # why, rather than that there is no server left to try
    return str(error) or complaint or type(error).__name__


def _public(address: str) -> str:
    scheme, separator, rest = address.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
