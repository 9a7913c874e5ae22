"""The connection to the broker: one client at a time, and a new one when it is lost.

Nothing is sent twice: a request ends in `ConnectionLost` when its client is lost, and the caller
decides. nats-py's own reconnect is off, because its buffer reorders messages.

Each connect tries the servers of a cluster in random order, with the present credential files. A
server that lost contact with the others accepts requests and never answers: we leave it.
"""

import asyncio
import json
import logging
import random
import secrets
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
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
from nats_logship.client.absence import Absence
from nats_logship.client.access import Access, without_password
from nats_logship.client.answer import ConnectionLost, Rejected, parse_answer
from nats_logship.client.client import BrokerClient, Tap
from nats_logship.client.credentials import read_credentials
from nats_logship.client.diagnosis import explain_failure
from nats_logship.client.outcomes import AnswerTimes, Denials
from nats_logship.wire.delivery import RawMessage

if TYPE_CHECKING:
    from nats_logship.client.access_settings import AccessSettings

Message = Msg
Answer = TypeVar("Answer")

ELECTION = 20.0
"""Seconds in which a cluster elects a new leader: four to nine, and more on busy machines."""

_INBOX, _API = "_INBOX", "$JS.API"  # the prefixes without a credential
_AGAIN, _FIRST_PAUSE = 0.5, 0.1  # seconds between attempts
_PATIENCE = 5.0  # seconds for an answer
_MAX_PENDING = 8 * 1024**2  # bytes of a subscription: thousands of shippers may ask at once
logger = logging.getLogger(__name__)


class BrokerAway(OperatorError):
    """No server accepts us; `keeps_out` says that a broker refused us."""

    def __init__(self, message: str, *, keeps_out: bool = False) -> None:
        super().__init__(message)
        self.keeps_out = keeps_out


class Connection:
    """A connection for the whole life of a program: each call connects first if it has to."""

    def __init__(
        self,
        servers: Sequence[str],
        name: str,
        access: Access = Access(),  # noqa: B008 - a frozen value
    ) -> None:
        """Remember the settings; the first call reads files and connects."""
        self._servers, self._name, self._access = list(dict.fromkeys(servers)), name, access
        self._last = ""  # the server that accepted us last; it is tried last
        self._inbox, self._api = access.inbox_prefix or _INBOX, access.api_prefix or _API
        self._client: BrokerClient | None = None
        self._connecting, self._retrying = asyncio.Lock(), asyncio.Lock()
        self._denials = Denials()
        self._times = AnswerTimes()
        self._absence = Absence()
        self.connected_at = 0.0
        """When the present client connected, by the clock of the event loop."""

    @property
    def away(self) -> str:
        """Why there is no broker; empty if there is one."""
        return self._absence.reason

    @property
    def servers(self) -> str:
        """The addresses without passwords."""
        return ", ".join(map(without_password, self._servers))

    async def connect(self, patience: float = 0.0) -> BrokerClient:
        """Return a live client; raises `BrokerAway` after `patience` seconds."""
        give_up = asyncio.get_running_loop().time() + patience
        while True:
            try:
                return await self._connect()
            except BrokerAway:
                if asyncio.get_running_loop().time() >= give_up:
                    raise
            await asyncio.sleep(_FIRST_PAUSE)

    async def client(self) -> BrokerClient:
        """Return a live client, however long that takes; `absence` says what is logged.

        All callers share the attempts, because a broker logs each that it refuses.
        """
        if (present := self._find_present()) is not None:
            return present
        clock = asyncio.get_running_loop().time
        async with self._retrying:
            while (present := self._find_present()) is None:
                await asyncio.sleep(max(0.0, self._absence.retry_at - clock()))
                try:
                    client = await self._connect()
                except (BrokerAway, ConfigurationError) as error:
                    keeps_out = isinstance(error, ConfigurationError) or error.keeps_out
                    was_there = bool(self.connected_at)
                    self._absence.note(
                        str(error), clock(), keeps_out=keeps_out, was_there=was_there
                    )
                else:
                    self._absence.end(client.address, clock())
                    return client
            return present

    def _find_present(self) -> BrokerClient | None:
        client = self._client
        return client if client and not self.away and self.is_current(client) else None

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
                # nats-py connects in wait_for, which forgets a cancellation that comes together
                # with the result (gh-86296): end the client that was made all the same
                if task and task.cancelling() > before:
                    await self.close()
                    raise asyncio.CancelledError
            self._denials.is_deaf = False
            self._times.forget()
            self.connected_at = asyncio.get_running_loop().time()
            return self._client

    async def _enter(self) -> BrokerClient:
        """Return a client of the first server that accepts us; raises `BrokerAway`."""
        credentials = await asyncio.to_thread(read_credentials, self._access)
        self._inbox = credentials.inbox_prefix or _INBOX
        self._api = credentials.api_prefix or _API
        reasons: dict[str, str] = {}
        is_any_reached = keeps_out = False
        order = random.sample(self._servers, len(self._servers))
        for server in sorted(order, key=lambda server: server == self._last):
            client = BrokerClient(server, self._access, credentials)
            try:
                await client.open(self._on_error, name=self._name, inbox_prefix=self._inbox)
            except (OSError, nats.errors.Error, TimeoutError) as error:
                reasons[server] = explain_failure(error, client)
                is_any_reached |= client.is_reached
                passes = isinstance(error, ConnectionError | TimeoutError)
                keeps_out |= client.is_broker and not passes
            else:
                self._last = server
                return client
        start = "; start one with `logbroker run --store-dir DIR`, or check --server"
        hint = "" if is_any_reached else start
        shown = "; ".join(reasons[server] for server in self._servers)
        raise BrokerAway(shown + hint, keeps_out=keeps_out)

    def is_current(self, client: BrokerClient) -> bool:
        """Whether this client is the present one and receives messages."""
        return client is self._client and client.is_usable and not self._denials.is_deaf

    def note_outcome(self, seconds: float, error: ConnectionLost | Rejected | None) -> None:
        """Note the outcome of a request that took `seconds`.

        Leaves a server that seems to have lost its cluster, if there is another server.
        """
        client, now = self._client, asyncio.get_running_loop().time()
        is_lost = self._times.has_lost_cluster(now, seconds, error)
        if is_lost and client is not None and len(self._servers) > 1:
            logger.debug("leaving %s: it does not answer", client.address)
            client.leave()

    async def _on_error(self, error: Exception) -> None:
        logger.debug("nats: %s", error)
        self._denials.note_error(error, self._inbox)

    async def guard(self, call: Awaitable[Answer], patience: float, subject: str = "") -> Answer:
        """Wait for `call` while the present client lives, and at most `patience` seconds.

        The arrival of a large message extends that time. Raises `ConnectionLost`, and `Denied` if
        we may not publish to `subject` or receive answers.
        """
        client, work = self._client, asyncio.ensure_future(call)
        # read its error in any case, or asyncio logs it
        work.add_done_callback(lambda work: work.cancelled() or work.exception())
        try:
            if client is None:
                raise ConnectionLost("not connected")
            with self._denials.watch(subject) as denied:
                await client.wait_for_any({work, client.lost, denied}, patience)
            if denied.done():
                raise denied.result()
            if client.lost.done() and not work.done():
                reason = client.last_error or "it was left"
                raise ConnectionLost(f"connection lost: {reason}")
            if not work.done():
                raise ConnectionLost(f"no answer in {patience:.0f} s")
            with _translate_errors():
                return work.result()
        finally:
            work.cancel()

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        patience: float = _PATIENCE,
    ) -> RawMessage:
        """Send a request and return the answer; raises `ConnectionLost`, `Rejected`.

        A slow network extends `patience`. Requests to `$JS.API.…` go to our prefix of that API.
        """
        client = await self.client()  # it has read the prefix from the credential file
        if subject.startswith(_API):
            subject = self.api_subject(subject.removeprefix(f"{_API}."))
        given = dict(headers) if headers else None
        patience += self.seconds_for(len(payload))
        began = asyncio.get_running_loop().time()
        self._times.start(len(payload))
        try:
            with _translate_errors():
                waiting = await client.ask(subject, payload, given)
            answer = await self.guard(waiting, patience, subject)
        finally:
            self._times.stop(len(payload))
        self._times.note_answer(len(payload), asyncio.get_running_loop().time() - began)
        return answer

    def seconds_for(self, size: int) -> float:
        """Return how long `size` bytes may take on this network, after all that is under way."""
        return self._times.seconds_for(size)

    async def ask(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        patience: float = _PATIENCE,
    ) -> dict[str, Any]:
        """Send a request or a message to JetStream and return its JSON; raises as `request`."""
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
        """Call the JetStream API, e.g. `api("STREAM.INFO.LOGS")`; raises as `request`."""
        payload = b"" if body is None else json.dumps(body).encode()
        return await self.ask(f"{_API}.{name}", payload, patience=patience)

    def api_subject(self, name: str) -> str:
        """Return the subject of a call of the JetStream API, e.g. `STREAM.INFO.LOGS`."""
        return f"{self._api}.{name}"

    @property
    def user_token(self) -> str:
        """Our own token in subjects; empty if our rights are not limited to it."""
        return self._inbox.partition(f"{_INBOX}_")[2]

    def new_token(self) -> str:
        """Return the end of a new subject: `user_token` and a random token."""
        return ".".join(filter(None, (self.user_token, secrets.token_hex(8))))

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a message by the present client; raises `ConnectionLost`."""
        client = self._client
        if client is None or not client.is_usable:
            raise ConnectionLost("not connected")
        given = dict(headers) if headers else None
        with _translate_errors():
            await client.publish(subject, payload, reply=reply, headers=given)
            await client.wait_until_sent()

    async def subscribe(
        self, subject: str, callback: Callable[[Message], Awaitable[None]], queue: str = ""
    ) -> Subscription:
        """Subscribe, until the present client ends; one member of a `queue` gets each message."""
        client = await self.client()
        limits: Any = {"pending_msgs_limit": -1, "pending_bytes_limit": _MAX_PENDING}
        with _translate_errors():
            return await client.subscribe(subject, queue, cb=callback, **limits)

    async def tap(self, subject: str, tap: Tap) -> Subscription:
        """Subscribe, for many or large messages, until the present client ends."""
        client = await self.client()
        with _translate_errors():
            return await client.tap(subject, tap)

    @asynccontextmanager
    async def open_inbox(self, tap: Tap) -> AsyncIterator[str]:
        """Yield a new inbox; `tap` receives its messages until the end of the block."""
        inbox = (await self.client()).new_inbox()
        subscription = await self.tap(inbox, tap)
        try:
            yield inbox
        finally:
            with suppress(ConnectionLost), _translate_errors():  # it ended with its client
                await subscription.unsubscribe()

    @property
    def incoming(self) -> int:
        """All bytes that the client has received while a message is incomplete, else 0.

        While it grows, an answer is not late: it may come after a large message.
        """
        return self._client.incoming if self._client is not None else 0

    def abandon(self) -> None:
        """Leave the present client and drop its pending output."""
        if self._client is not None and self._client.is_usable:
            self._client.abandon()

    async def close(self) -> None:
        """Send pending output and end."""
        if self._client is not None:
            with suppress(nats.errors.Error, OSError, TimeoutError):  # it may be dead
                await self._client.end()
        self._client = None


async def retry_until_answered(
    connection: Connection, ask: Callable[[Connection], Awaitable[Answer]], patience: float
) -> Answer:
    """Return the result of `ask`, which must change nothing: it is repeated for `patience` seconds.

    If nobody answers, only a cluster is asked again: it may elect a leader. Raises the last error
    of `ask`, or `BrokerAway`.
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
    """Connect, return the result of `question` as `retry_until_answered` does, and disconnect.

    Raises `OperatorError`.
    """

    async def run() -> Answer:
        connection = Connection(settings.server, program, access=settings.access)
        try:
            with raise_for_operator(connection):
                await connection.connect()
                return await retry_until_answered(connection, question, patience)
        finally:
            await connection.close()

    return asyncio.run(run())


@contextmanager
def raise_for_operator(connection: Connection) -> Iterator[None]:
    """Raise `OperatorError` for `Rejected` and `ConnectionLost`."""
    at = f"the broker at {connection.servers}"
    try:
        yield
    except Rejected as error:
        hint = "; set it up with `logbroker apply`" if error.is_absent else ""
        raise OperatorError(f"{at} refuses: {error.description}{hint}") from None
    except ConnectionLost as error:
        raise OperatorError(f"{at} does not answer: {error}") from None


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise `Rejected` if nobody subscribes, and `ConnectionLost` for other errors of nats-py."""
    try:
        yield
    except nats.errors.NoRespondersError:
        raise Rejected(503, 0, "nobody answers there: no JetStream, or no such stream") from None
    except (nats.errors.Error, OSError) as error:
        raise ConnectionLost(str(error) or type(error).__name__) from error
