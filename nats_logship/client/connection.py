"""The connection to the broker: one client at a time, remade when it is lost.

Nothing is sent twice: whatever was under way when a client was lost ends in `ConnectionLost`, and the caller decides what
to do. nats-py's own reconnect is off: its buffer reorders what was published meanwhile.

The servers of a cluster are tried in turn, each time with the credential files as they are then, and left again: a server
that was cut off from the others lets clients in and takes what they send, and nothing comes of it.
"""

import asyncio
import json
import logging
import random
import re
import secrets
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.client.access import Access, public
from nats_logship.client.answer import ConnectionLost, Denied, Rejected, parse_answer
from nats_logship.client.client import DIRECT_BYTES, BrokerClient, Tap, why_not
from nats_logship.client.credentials import read_credentials
from nats_logship.wire.streams import SLOWEST_LINK

if TYPE_CHECKING:
    from nats_logship.client.access_settings import AccessSettings

Message = Msg
Answer = TypeVar("Answer")

ELECTION = 20.0
"""Seconds in which a cluster that lost a leader has another one: four to nine, and more where its machines are busy."""

_ANYBODY, _API = "_INBOX", "$JS.API"  # prefixes of whoever has none of its own
_AGAIN, _FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 0.1, 5.0  # seconds between attempts
_PATIENCE = 5.0  # seconds for an answer: a server that gives none is left for another one
_MOST_SILENCE = 4.5  # seconds without an answer; until then a server may not know that another died
_MOST_WAITING = 8 * 1024**2  # bytes of a subscription: thousands of shippers may ask at once
_SLOWER = 10  # times slower may a line become before an answer is overdue
_MOMENT = 0.001  # seconds
_NEVER = 86_400.0  # seconds: `guard` ends a request sooner
_MOST_REFUSALS = 12.0  # seconds without a leader; elections take four to nine
_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')
logger = logging.getLogger(__name__)


class BrokerAway(OperatorError):
    """No broker lets us in at the addresses given; `keeps_out` is one that is there."""

    def __init__(self, message: str, *, keeps_out: bool = False) -> None:
        super().__init__(message)
        self.keeps_out = keeps_out


class Connection:
    """A connection that can be used for ever: each call first makes sure that there is a live client."""

    def __init__(
        self,
        servers: Sequence[str],
        name: str,
        access: Access = Access(),  # noqa: B008 - a frozen value
    ) -> None:
        """Remember where to connect to, and how; nothing is sent and no file is read before the first call."""
        self._servers, self._name, self._access = list(dict.fromkeys(servers)), name, access
        self._last = ""  # the server that let us in last, and is the last to be asked again
        self._inbox, self._api = access.inbox_prefix or _ANYBODY, access.api_prefix or _API
        self._client: BrokerClient | None = None
        self._connecting = asyncio.Lock()
        self._watched: list[tuple[str, asyncio.Future[Denied]]] = []
        self._is_deaf = False  # our inbox was denied: no answer is heard on this client
        self._under_way = 0  # bytes of requests that are not answered
        self._rate = 0.0  # bytes a second of the last large request that was, on this client
        self._doubted: float | None = None  # since when no answer has come from somebody who leads
        self.away = ""
        """Why no broker is there for `client` just now; empty while one is."""
        self.connected_at = 0.0
        """When the present client was connected, by the clock of the event loop."""

    @property
    def servers(self) -> str:
        """The addresses, for messages to a person: without the passwords that may be in them."""
        return ", ".join(map(public, self._servers))

    async def connect(self, patience: float = 0.0) -> BrokerClient:
        """Return a live client, or raise `BrokerAway` when none answers for `patience` seconds: for what a person waits for."""
        give_up = asyncio.get_running_loop().time() + patience
        while True:
            try:
                return await self._connect()
            except BrokerAway:
                if asyncio.get_running_loop().time() >= give_up:
                    raise
            await asyncio.sleep(_FIRST_PAUSE)

    async def client(self) -> BrokerClient:
        """Return a live client, however long it takes; says once why there is none, and once that there is one again."""
        pause = _FIRST_PAUSE
        while True:
            try:
                client = await self._connect()
            except (BrokerAway, ConfigurationError) as error:
                self._log_away(error)
                self.away = str(error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            if self.away:
                logger.info("broker at %s is back", client.address)
            self.away = ""
            return client

    def _log_away(self, error: BrokerAway | ConfigurationError) -> None:
        """Log once why there is no broker: one that restarts gives several reasons in turn."""
        keeps_out = isinstance(error, ConfigurationError) or error.keeps_out
        if not self.away or (keeps_out and str(error) != self.away):
            logger.warning("broker away: %s; trying again", error)

    async def _connect(self) -> BrokerClient:
        async with self._connecting:
            if self._client is not None and self.is_current(self._client):
                return self._client
            task = asyncio.current_task()
            before = task.cancelling() if task else 0
            try:
                await self.close()
                self._client = await self._enter()
            finally:
                # wait_for, by which nats-py connects, forgets a cancellation that comes with the result (gh-86296)
                if task and task.cancelling() > before:
                    # else nobody ends the tasks of a client that was made all the same
                    await self.close()
                    raise asyncio.CancelledError
            self._is_deaf, self._doubted, self._rate = False, None, 0.0
            self.connected_at = asyncio.get_running_loop().time()
            return self._client

    async def _enter(self) -> BrokerClient:
        """Return a client of the first server that lets us in; raises `BrokerAway` with what kept us out of each."""
        credentials = await asyncio.to_thread(read_credentials, self._access)
        self._inbox = credentials.inbox_prefix or _ANYBODY
        self._api = credentials.api_prefix or _API
        reasons: dict[str, str] = {}
        is_any_reached = keeps_out = False
        order = random.sample(self._servers, len(self._servers))
        for server in sorted(order, key=lambda server: server == self._last):
            client = BrokerClient(server, self._access, credentials)
            try:
                await client.open(self._on_error, name=self._name, inbox_prefix=self._inbox)
            except (OSError, nats.errors.Error, TimeoutError) as error:
                reasons[server] = why_not(error, client)
                is_any_reached |= client.is_reached
                passes = isinstance(error, ConnectionError | TimeoutError)
                keeps_out |= client.is_broker and not passes
            else:
                self._last = server
                return client
        hint = "" if is_any_reached else "; start one with `logbroker run`, or check --server"
        shown = "; ".join(reasons[server] for server in self._servers)
        raise BrokerAway(shown + hint, keeps_out=keeps_out)

    def is_current(self, client: BrokerClient) -> bool:
        """Whether this client is the present one and lives: what was subscribed on it is still heard."""
        return client is self._client and client.is_usable and not self._is_deaf

    def note_outcome(self, seconds: float, error: ConnectionLost | Rejected | None) -> None:
        """Note how a question ended after so many seconds; leave a server that seems cut off from its cluster, if there is another."""
        if isinstance(error, Rejected) and error.is_conflict:
            return  # who leads nobody any more says so as well, and has our own write in hand
        if error is None or (isinstance(error, Rejected) and not error.is_leaderless):
            self._doubted = None
            return
        now = asyncio.get_running_loop().time()
        most = _MOST_REFUSALS if isinstance(error, Rejected) else _MOST_SILENCE
        self._doubted = min(now - seconds, self._doubted or now)
        client = self._client
        if client is not None and len(self._servers) > 1 and now - self._doubted >= most:
            logger.debug("leaving %s: nothing comes of what it is asked", client.address)
            client.leave()

    async def _on_error(self, error: Exception) -> None:
        """Hear what the server denies: a message without the right to its subject is dropped, and its sender would wait in vain."""
        logger.debug("nats: %s", error)
        found = _VIOLATION.search(str(error).lower())  # nats-py hands it on in lower case
        if found is None:
            return
        action, subject = found[1], found[2]
        is_inbox = action == "subscription" and subject.startswith(self._inbox.lower())
        self._is_deaf |= is_inbox
        for watched, denied in self._watched:
            if (is_inbox or watched.lower() == subject) and not denied.done():
                named = f"{self._inbox}.>" if is_inbox else watched
                denied.set_result(Denied(f'permissions violation for {action} to "{named}"'))

    async def guard(
        self, call: Coroutine[Any, Any, Answer], patience: float, subject: str = ""
    ) -> Answer:
        """Wait for `call`, at most `patience` seconds and no longer than the present client lives.

        While a large message arrives, an answer may wait behind it: that time is no silence.
        Raises `ConnectionLost` (what was sent may have arrived), and `Denied` where we may not publish to `subject`, or hear answers.
        """
        client = self._client
        if client is None:
            call.close()
            raise ConnectionLost("not connected")
        work = asyncio.ensure_future(call)
        # asyncio complains of an error that nobody looked at, also where nobody waits any more
        work.add_done_callback(lambda work: work.cancelled() or work.exception())
        denied: asyncio.Future[Denied] = asyncio.get_running_loop().create_future()
        self._watched.append(watch := (subject, denied))
        try:
            either: set[asyncio.Future[Any]] = {work, client.lost, denied}
            await _wait(either, client, patience)
            if denied.done():
                raise denied.result()
            if not work.done():
                lost = f"connection lost: {client.last_error or 'it was left'}"
                raise ConnectionLost(
                    lost if client.lost.done() else f"no answer in {patience:.0f} s"
                )
            with _translated():
                return work.result()
        finally:
            self._watched.remove(watch)
            work.cancel()

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        patience: float = _PATIENCE,
    ) -> Message:
        """Send a request and return its answer; raises `ConnectionLost`, `Rejected` if nobody listens.

        It may take `patience` seconds, and what all that is under way takes on a slow line. One of
        the JetStream API, `$JS.API.…`, goes to where that is for the user that we are.
        """
        client = await self.client()  # its credential file says where the API is
        if subject.startswith(_API):
            subject = self.api_subject(subject.removeprefix(f"{_API}."))
        given = dict(headers) if headers else None
        call = client.request(subject, payload, timeout=_NEVER, headers=given)
        patience += self.seconds_for(len(payload))
        began = asyncio.get_running_loop().time()
        self._under_way += len(payload)
        try:
            answer = await self.guard(call, patience, subject)
        finally:
            self._under_way -= len(payload)
        if len(payload) >= DIRECT_BYTES:
            self._rate = len(payload) / (asyncio.get_running_loop().time() - began + _MOMENT)
        return answer

    def seconds_for(self, size: int) -> float:
        """Return how many seconds bytes may take to the server behind what is under way.

        That is on the slowest line, or on one that has become much slower than it was.
        """
        return (self._under_way + size) / max(SLOWEST_LINK, self._rate / _SLOWER)

    async def ask(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        patience: float = _PATIENCE,
    ) -> dict[str, Any]:
        """Send a request that JetStream answers in JSON, a publish among them; raises `Rejected` for an error answer."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            answer = parse_answer((await self.request(subject, payload, headers, patience)).data)
        except (ConnectionLost, Rejected) as error:
            self.note_outcome(clock() - began, error)
            raise
        self.note_outcome(0.0, None)
        return answer

    async def api(
        self, name: str, body: Mapping[str, Any] | None = None, patience: float = _PATIENCE
    ) -> dict[str, Any]:
        """Call the JetStream API, e.g. `api("STREAM.INFO.LOGS")`; raises `Rejected` for an error answer."""
        payload = b"" if body is None else json.dumps(body).encode()
        return await self.ask(f"{_API}.{name}", payload, patience=patience)

    def api_subject(self, name: str) -> str:
        """Return the subject of a call of the JetStream API for the user that we are, e.g. `STREAM.INFO.LOGS`."""
        return f"{self._api}.{name}"

    async def list_all(self, call: str, key: str, patience: float = _PATIENCE) -> list[Any]:
        """Return all entries of a list of several pages, e.g. `pages("STREAM.NAMES", "streams")`.

        Raises `Rejected`, and `ConnectionLost` where some are missing: in a cluster the server of one may have died.
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

    @property
    def user_token(self) -> str:
        """Our name in subjects, where our rights are limited to those; empty where they are not."""
        return self._inbox.partition(f"{_ANYBODY}_")[2]

    def new_token(self) -> str:
        """Return the end of a new subject: `own`, and a random token."""
        return ".".join(filter(None, (self.user_token, secrets.token_hex(8))))

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
        given = dict(headers) if headers else None
        with _translated():
            await client.publish(subject, payload, reply=reply, headers=given)

    async def subscribe(
        self, subject: str, callback: Callable[[Message], Awaitable[None]], queue: str = ""
    ) -> Subscription:
        """Subscribe on the present client; the subscription ends with it. In a `queue` one of all hears each message."""
        client = await self.client()
        limits: Any = {"pending_msgs_limit": -1, "pending_bytes_limit": _MOST_WAITING}
        with _translated():
            return await client.subscribe(subject, queue, cb=callback, **limits)

    async def tap(self, subject: str, tap: Tap) -> Subscription:
        """Subscribe on the present client, for many or large messages: `tap` is a plain function, told of each at once."""
        client = await self.client()
        with _translated():
            return await client.tap(subject, tap)

    @asynccontextmanager
    async def open_inbox(self, tap: Tap) -> AsyncIterator[str]:
        """Give a new inbox, all of whose messages `tap` is told of until the end of the block."""
        inbox = (await self.client()).new_inbox()
        subscription = await self.tap(inbox, tap)
        try:
            yield inbox
        finally:
            with suppress(ConnectionLost), _translated():  # gone with its client
                await subscription.unsubscribe()

    @property
    def incoming(self) -> int:
        """How many bytes the client has read while the rest of a message is to come, else 0.

        What comes behind a large message on a slow line is not overdue while this grows.
        """
        return self._client.incoming if self._client is not None else 0

    def abandon(self) -> None:
        """Leave the present client, without what it has still to send."""
        if self._client is not None and self._client.is_usable:
            self._client.abandon()

    async def close(self) -> None:
        """Send what is still in hand and end; a broker that is away is no error."""
        if self._client is not None:
            with suppress(nats.errors.Error, OSError, TimeoutError):  # its line may be dead
                await self._client.end()
        self._client = None


async def retry_until_answered(
    connection: Connection, ask: Callable[[Connection], Awaitable[Answer]], patience: float
) -> Answer:
    """Return what `ask` finds, which changes nothing; `ask` is called again for `patience` seconds while nobody answers.

    Only a cluster is waited for where nobody listens: it may elect a leader. Raises what `ask` raised last, or `BrokerAway`.
    """
    clock = asyncio.get_running_loop().time
    give_up = clock() + patience
    while True:
        client = await connection.connect(max(0.0, give_up - clock()))
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


def ask_broker(
    settings: "AccessSettings",
    program: str,
    question: Callable[[Connection], Awaitable[Answer]],
    patience: float = 0.0,
) -> Answer:
    """Connect as `program`, return what `question` finds, and disconnect: all that a command asks of a broker.

    What changes nothing may be asked again for `patience` seconds while a cluster has no leader. Raises `OperatorError` for
    a broker that is away, refuses or does not answer.
    """

    async def asked() -> Answer:
        connection = Connection(settings.server, program, access=settings.access)
        try:
            with raise_for_operator(connection):
                await connection.connect()
                return await retry_until_answered(connection, question, patience)
        finally:
            await connection.close()

    return asyncio.run(asked())


@contextmanager
def raise_for_operator(connection: Connection) -> Iterator[None]:
    """Raise `OperatorError` for a broker that refuses or does not answer."""
    at = f"the broker at {connection.servers}"
    try:
        yield
    except Rejected as error:
        hint = "; set it up with `logbroker apply`" if error.is_absent else ""
        raise OperatorError(f"{at} refuses: {error.description}{hint}") from None
    except ConnectionLost as error:
        raise OperatorError(f"{at} does not answer: {error}") from None


async def _wait(waited: set["asyncio.Future[Any]"], client: BrokerClient, patience: float) -> None:
    """Wait until one is done, or nothing of a message has come for `patience` seconds."""
    while True:
        before = client.incoming
        done, _ = await asyncio.wait(waited, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if done or client.incoming <= before:
            return


@contextmanager
def _translated() -> Iterator[None]:
    """Raise `Rejected` where nobody listens, `ConnectionLost` for what else nats-py raises of its connection."""
    try:
        yield
    except nats.errors.NoRespondersError:
        raise Rejected(503, 0, "nobody listens there: no JetStream, or no such stream") from None
    except (nats.errors.Error, OSError) as error:
        raise ConnectionLost(str(error) or type(error).__name__) from error
