"""What logbroker hears over NATS: who asks for its report, admins who ask of credentials, hosts and receivers who want consumers.

Hosts and receivers make no consumer that pushes. Rights name which consumer a credential may make, yet not what it is made to do.
One that pushes would have the server publish inside the account of the stream, where hosts and receivers have no rights: to another's
inbox. So their accounts have no way to CONSUMER.CREATE but `ConsumerRequests`. Other sites make such consumers, for their copies.
"""

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from broker.app.exits import OperatorError
from broker.app.untrusted import printable
from broker.auth.files import change_credentials, load_credentials
from broker.auth.permissions import CONSUMER_REQUESTS
from broker.auth.store import CredentialKind, Holder, InvalidStore
from broker.client.answer import ConnectionLost, Rejected
from broker.client.connection import Connection, Message
from broker.report import CredentialsReport, CredentialsRequest

_AWAY = 0.5  # seconds until it listens again
_FLUSH = 3600  # seconds; a client that hears nothing is lost long before
_CREATE = "$JS.API.CONSUMER.CREATE"
_ACKNOWLEDGES = "$JS.ACK."
_LARGEST = 64 * 1024  # bytes of a request; ours have less than one KiB
_LONGEST_SUBJECT = 1024  # characters; two names of at most 255 bytes, and a host
_AT_ONCE = 64  # requests that JetStream is asked at a time
_REFUSED = 10012  # JetStream's error for a consumer that cannot be made
_REQUEST = {"stream_name", "config", "action"}
_CONFIG = {
    *("name", "durable_name", "description", "metadata"),
    *("filter_subject", "filter_subjects", "deliver_policy", "opt_start_seq", "opt_start_time"),
    *("ack_policy", "ack_wait", "max_ack_pending", "max_deliver", "replay_policy"),
    *("headers_only", "mem_storage", "num_replicas", "inactive_threshold", "max_waiting"),
}

Handler = Callable[[Message], Awaitable[None]]


async def listen(
    connection: Connection,
    handlers: Mapping[str, Handler],
    listens: asyncio.Event,
    queue: str = "",
) -> None:
    """Listen for requests, by subject, until cancelled, as one of a `queue`, through lost connections; `listens` is set once they are heard."""

    async def take(handle: Handler, message: Message) -> None:
        # lines that a consumer pushes here, as other sites may have one do, are no requests: their reply acknowledges them
        if message.reply and not message.reply.startswith(_ACKNOWLEDGES):
            with suppress(ConnectionLost):
                await handle(message)

    while True:
        client = await connection.client()
        with suppress(ConnectionLost):
            for subject, handle in handlers.items():
                await connection.subscribe(subject, partial(take, handle), queue)
            await connection.guard(client.flush(_FLUSH), _FLUSH)
            listens.set()
            await asyncio.wait([client.lost])
        await asyncio.sleep(_AWAY)


def pulled_only(request: bytes) -> bytes | str:
    """Return a request as it may be passed on, written anew from known names (nats-server takes any case, and doubles), or why not."""
    try:
        body = json.loads(request) if len(request) <= _LARGEST else None
        written = json.dumps(body).encode()
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, Mapping) or not isinstance(config := body.get("config"), Mapping):
        return "the request is no JSON object with a configuration"
    names = [config.get(field) for field in ("name", "durable_name")]
    if not all(name is None or (isinstance(name, str) and name.isprintable()) for name in names):
        return "the name of the consumer is none"
    if unknown := sorted((body.keys() - _REQUEST) | (config.keys() - _CONFIG)):
        named = printable(", ".join(unknown)[:200])
        return f"a host or a receiver may not set {named} of a consumer"
    return written


class ConsumerRequests:
    """Takes the requests, each by one broker of a cluster, and passes over others for a consumer while one is under way."""

    def __init__(self, connection: Connection) -> None:
        """Take none yet."""
        self._connection = connection
        self.listens = asyncio.Event()
        """Set from when requests are heard for the first time."""
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._passing: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Take requests until cancelled, and leave none under way."""
        handlers = {f"{CONSUMER_REQUESTS}.>": self._take}
        try:
            await listen(self._connection, handlers, self.listens, "logbroker")
        finally:
            for task in self._passing.values():
                task.cancel()

    async def _take(self, message: Message) -> None:
        asked = message.subject.removeprefix(f"{CONSUMER_REQUESTS}.")
        # where none is named, as in the requests of `logreceiver offsets`, each is for a consumer of its own
        key = asked if "." in asked else message.reply
        if key in self._passing:
            return
        # the line to the server is bounded
        is_fit = len(asked) <= _LONGEST_SUBJECT and asked.isprintable()
        taken = pulled_only(message.data) if is_fit else "the name of the consumer is none"
        if isinstance(taken, str):
            answer = {
                "type": "io.nats.jetstream.api.v1.consumer_create_response",
                "error": {"code": 400, "err_code": _REFUSED, "description": taken},
            }
            await self._connection.publish(message.reply, json.dumps(answer).encode())
            return
        await self._gate.acquire()
        self._passing[key] = asyncio.ensure_future(self._pass_on(key, asked, taken, message.reply))

    async def _pass_on(self, key: str, asked: str, request: bytes, reply: str) -> None:
        try:
            # where JetStream does not answer nobody does, and the asker asks again
            with suppress(ConnectionLost, Rejected):
                answer = await self._connection.request(f"{_CREATE}.{asked}", request)
                await self._connection.publish(reply, answer.data)
        finally:
            del self._passing[key]
            self._gate.release()


async def credentials_answer(
    folder: Path, name: str, reload: Callable[[], Awaitable[None]], message: Message
) -> bytes:
    """Do what an admin asks (only the account of the streams hears it), and return the answer of the broker `name`, compressed; `reload` takes over a changed store."""
    error = ""
    try:
        request = CredentialsRequest.model_validate_json(message.data or b"{}")
        if request.revoke:
            await asyncio.to_thread(_revoke, folder, request)
            await reload()
    except (ValidationError, InvalidStore, OperatorError) as failure:
        error = str(failure)
    try:
        report = await asyncio.to_thread(report_of, folder, name, error)
    except OperatorError as failure:
        report = CredentialsReport(name=name, error=error or str(failure))
    # thousands of credentials would not fit into a message as they are
    return zlib.compress(report.model_dump_json().encode())


def _revoke(folder: Path, request: CredentialsRequest) -> None:
    holders = [Holder(CredentialKind(kind), name) for kind, name in request.revoke]
    change_credentials(folder, lambda store: store.revoked(holders))


def report_of(folder: Path, name: str = "", error: str = "") -> CredentialsReport:
    """Return the credentials of a broker's directory; raises `OperatorError`."""
    store = load_credentials(folder)
    found = [one.model_dump(mode="json") for one in store.credentials]
    return CredentialsReport(name=name, secured=store.secured, credentials=found, error=error)
