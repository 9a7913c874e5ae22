"""The connection to the broker: one client at a time, remade when it is lost.

It never sends anything twice and never reconnects under the feet of its user: whatever was under way when a client
was lost ends in `ConnectionLost`, and only the user can know what to do about it. nats-py's own reconnect is off: its
buffer reorders what was published meanwhile.
"""

import asyncio
import json
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from broker.app.exits import ConfigurationError
from broker.client.access import Access
from broker.client.answer import ConnectionLost, Denied, Rejected, answer_of
from broker.client.client import BrokerClient
from broker.client.receiving import Tap
from broker.client.rights import Denials
from broker.client.server_pool import ANYBODY, BrokerAway, ServerPool, Trust
from broker.wire.delivery import RawMessage

__all__ = [
    "ELECTION",
    "BrokerAway",
    "Connection",
    "ConnectionLost",
    "Denied",
    "Message",
    "RawMessage",
    "Rejected",
    "until_answered",
]

Message = Msg
Answer = TypeVar("Answer")

ELECTION = 20.0
"""Seconds in which a cluster that lost a leader has another one: four to nine, and more where its machines are busy."""

_AGAIN = 0.5  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between attempts to connect
_PATIENCE, _PATIENCE_AMONG = 5.0, 3.0  # seconds; the second where others could be asked
logger = logging.getLogger(__name__)


class Connection:
    """A connection that can be used for ever: each call first makes sure that there is a live client."""

    def __init__(
        self,
        servers: Sequence[str],
        name: str,
        access: Access = Access(),  # noqa: B008 - a frozen value
    ) -> None:
        """Remember where to connect to, and how; nothing is sent and no file is read before the first call."""
        self._pool = ServerPool(servers, name, access)
        self._client: BrokerClient | None = None
        self._connecting = asyncio.Lock()
        self._denials = Denials(ANYBODY)
        self._trust = Trust()
        self.away = ""
        """Why no broker is there for `client` just now; empty while one is, or nobody asks."""

    @property
    def servers(self) -> str:
        """The addresses, for messages to a person: without the passwords that may stand in them."""
        return str(self._pool)

    @property
    def has_choice(self) -> bool:
        """Whether there is more than one server to connect to."""
        return self._pool.is_one_of_several

    async def once(self, patience: float = 0.0) -> BrokerClient:
        """Return a live client, or raise `BrokerAway` when none answers for `patience` seconds.

        For what a person waits for: commands, and programs that run once.
        """
        give_up = asyncio.get_running_loop().time() + patience
        while True:
            try:
                return await self._connect()
            except BrokerAway:
                if asyncio.get_running_loop().time() >= give_up:
                    raise
            await asyncio.sleep(_FIRST_PAUSE)

    async def client(self) -> BrokerClient:
        """Return a live client, however long it takes; says once why there is none, and once that there is one again.

        `away` says it as well, as long as it lasts.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                client = await self._connect()
            except (BrokerAway, ConfigurationError) as error:
                if str(error) != self.away:
                    logger.warning("broker away: %s; trying again", error)
                self.away = str(error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            if self.away:
                logger.info("broker at %s is back", client.address)
            self.away = ""
            return client

    async def _connect(self) -> BrokerClient:
        async with self._connecting:
            if self._client is not None and self.is_on(self._client):
                return self._client
            with _kept_cancellations():
                await self._drop()
                self._client = await self._pool.connect(self._on_error)
            self._denials, self._trust = Denials(self._pool.inbox_prefix), Trust()
            return self._client

    def is_on(self, client: BrokerClient) -> bool:
        """Whether this client is the present one and lives: what was subscribed on it is still heard."""
        return client is self._client and client.is_usable and not self._denials.is_deaf

    def judge(self, seconds: float, error: ConnectionLost | Rejected | None) -> None:
        """Take note of how a question to the stream, or its like, ended after so many seconds.

        A server that seems cut off from its cluster is left with the next call, where there is another one: what is under way
        there ends in `ConnectionLost`.
        """
        client, now = self._client, asyncio.get_running_loop().time()
        if client is None or client.lost.done():
            return
        if self._trust.is_lost(error, seconds, now) and self.has_choice:
            logger.debug("leaving %s: nothing comes of what it is asked", client.address)
            client.leave()

    async def _on_error(self, error: Exception) -> None:
        logger.debug("nats: %s", error)
        self._denials.hear(str(error))

    async def _drop(self) -> None:
        if self._client is not None:
            with suppress(nats.errors.Error, OSError, TimeoutError):  # its line may be dead
                await self._client.end()
        self._client = None

    async def guard(
        self, call: Coroutine[Any, Any, Answer], patience: float, subject: str = ""
    ) -> Answer:
        """Wait for `call`, at most `patience` seconds and no longer than the present client lives.

        Raises `ConnectionLost` when it did not end well; what it sent may have arrived all the same. Raises `Denied` when
        the server says that we may not publish to `subject`, or hear answers.
        """
        client = self._client
        if client is None:
            call.close()
            raise ConnectionLost("not connected")
        work = asyncio.ensure_future(call)
        work.add_done_callback(_retrieve)
        try:
            with self._denials.watch(subject) as denied:
                either: set[asyncio.Future[Any]] = {work, client.lost, denied}
                await asyncio.wait(either, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if denied.done():
                raise denied.result()
            if not work.done():
                raise ConnectionLost(
                    _why_lost(client) if client.lost.done() else f"no answer in {patience:g} s"
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
        patience: float | None = None,
    ) -> Message:
        """Send a request and return its answer; raises `ConnectionLost`, or `Rejected` where nobody listens.

        Without a `patience`, in seconds, it is 5 s, or 3 s where another server can be asked.
        """
        client = await self.client()
        patience = patience or (_PATIENCE_AMONG if self.has_choice else _PATIENCE)
        return await self.guard(
            client.request(
                subject, payload, timeout=patience + 1, headers=dict(headers) if headers else None
            ),
            patience,
            subject,
        )

    async def ask(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        patience: float | None = None,
    ) -> dict[str, Any]:
        """Send a request that JetStream answers in JSON, a publish among them; raises `Rejected` for an error answer."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            answer = answer_of((await self.request(subject, payload, headers, patience)).data)
        except (ConnectionLost, Rejected) as error:
            self.judge(clock() - began, error)
            raise
        self.judge(clock() - began, None)
        return answer

    async def api(
        self, name: str, body: Mapping[str, Any] | None = None, patience: float | None = None
    ) -> dict[str, Any]:
        """Call the JetStream API, e.g. `api("STREAM.INFO.LOGS")`; raises `Rejected` for an error answer."""
        payload = b"" if body is None else json.dumps(body).encode()
        await self.client()  # its credential file says where the API is
        return await self.ask(self.api_subject(name), payload, patience=patience)

    async def call(self, name: str, payload: bytes = b"", patience: float | None = None) -> Message:
        """Call the JetStream API and return its answer as it is, for those that are no JSON; raises as `request`."""
        await self.client()
        return await self.request(self.api_subject(name), payload, patience=patience)

    def api_subject(self, name: str) -> str:
        """Return the subject of a call of the JetStream API for the user that we are, e.g. `STREAM.INFO.LOGS`."""
        return f"{self._pool.api_prefix}.{name}"

    async def pages(self, call: str, key: str, patience: float | None = None) -> list[Any]:
        """Return all entries of a list that the server gives page by page, e.g. `pages("STREAM.NAMES", "streams")`.

        Raises `Rejected`, and `ConnectionLost` where it does not tell of all: in a cluster the server of one may have died.
        """
        found: list[Any] = []
        while True:
            page = await self.api(call, {"offset": len(found)}, patience)
            entries, missing = page.get(key) or [], page.get("missing") or []
            found.extend(entries)
            if missing or (not entries and len(found) < page.get("total", 0)):
                named = ", ".join(sorted(missing)) or "some"
                raise ConnectionLost(f"{call}: no server tells of {named}")
            if len(found) >= page.get("total", 0):
                return found

    async def permissions(self) -> Mapping[str, Any] | None:
        """Return what the server says that we may do; None for a user without limits, and where it does not tell."""
        try:
            answer = json.loads((await self.request("$SYS.REQ.USER.INFO")).data)
        except (Rejected, ValueError):
            return None
        found = answer.get("data") if isinstance(answer, dict) else None
        return found.get("permissions") if isinstance(found, dict) else None

    @property
    def own(self) -> str:
        """What our rights name us by in subjects, as our inbox says; empty for a user whose rights are not limited so."""
        return self._pool.inbox_prefix.partition(f"{ANYBODY}_")[2]

    def private(self) -> str:
        """Return the end of a new subject: our own name, where our rights are limited to such subjects, and a random token."""
        return ".".join(filter(None, (self.own, secrets.token_hex(8))))

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Hand a message to the present client; raises `ConnectionLost` when there is none to take it."""
        client = self._client
        if client is None or not client.is_usable:
            raise ConnectionLost("not connected")
        with _translated():
            await client.publish(
                subject, payload, reply=reply, headers=dict(headers) if headers else None
            )

    async def subscribe(
        self,
        subject: str,
        callback: Callable[[Message], Awaitable[None]],
        pending_bytes: int = 64 * 1024 * 1024,
        queue: str = "",
    ) -> Subscription:
        """Subscribe on the present client; the subscription ends with it. In a `queue` one of all hears each message."""
        client = await self.client()
        with _translated():
            return await client.subscribe(
                subject,
                queue=queue,
                cb=callback,
                pending_msgs_limit=-1,
                pending_bytes_limit=pending_bytes,
            )

    async def tap(self, subject: str, tap: Tap) -> Subscription:
        """Subscribe on the present client, for many or large messages: `tap` is a plain function, told of each at once."""
        client = await self.client()
        with _translated():
            return await client.tap(subject, tap)

    def new_inbox(self) -> str:
        """Return a subject of our own for answers."""
        if self._client is None:
            raise ConnectionLost("not connected")
        return self._client.new_inbox()

    async def close(self) -> None:
        """Send what is still in hand and end; a broker that is away is no error."""
        await self._drop()


async def until_answered(
    connection: Connection, ask: Callable[[Connection], Awaitable[Answer]], patience: float
) -> Answer:
    """Return what `ask` finds, which changes nothing; it is begun again for `patience` seconds while nobody answers.

    That nobody listens is waited out at a server of a cluster only: a server of its own has no leader to elect. Raises what
    `ask` raised last, or `BrokerAway`.
    """
    clock = asyncio.get_running_loop().time
    give_up = clock() + patience
    while True:
        client = await connection.once(max(0.0, give_up - clock()))
        try:
            return await ask(connection)
        except ConnectionLost:
            if clock() >= give_up:
                raise
        except Rejected as error:
            may_pass = error.is_leaderless and (client.is_clustered or not error.is_nobody)
            if clock() >= give_up or not may_pass:
                raise
        await asyncio.sleep(_AGAIN)


def _why_lost(client: BrokerClient) -> str:
    words = client.last_error
    return f"connection lost: {words}" if words else "connection lost"


@contextmanager
def _translated() -> Iterator[None]:
    """Raise `ConnectionLost` for what nats-py raises of its connection."""
    try:
        yield
    except (nats.errors.Error, OSError) as error:
        raise ConnectionLost(str(error) or type(error).__name__) from error


def _retrieve(work: "asyncio.Future[Any]") -> None:
    """Look at how it ended: asyncio complains of an error that nobody looked at, also where nobody waits any more."""
    if not work.cancelled():
        work.exception()


@contextmanager
def _kept_cancellations() -> Iterator[None]:
    """Raise `CancelledError` at the end when the task was cancelled inside, whatever came of it.

    nats-py connects by `asyncio.wait_for`, which in Python 3.11 forgets a cancellation that comes together with the
    result (gh-86296).
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
