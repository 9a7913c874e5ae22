"""What logbroker hears over NATS: who asks for its report, for credentials, and for consumers.

Hosts and receivers make no consumer that pushes. Rights name which consumer a credential may make,
yet not what it is made to do. One that pushes would have the server publish inside the account of
the stream, where hosts and receivers have no rights: to another's inbox. So their accounts have no
way to CONSUMER.CREATE but `ConsumerRequests`.

The servers of other sites make consumers that push, for their copies. `ConsumerRequests` passes on
a new consumer of a whole stream that delivers to `SITE.<ours>`, which nobody here listens to, and
nothing else.
"""

import asyncio
import json
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from broker.auth.credentials import CredentialKind, Holder, InvalidStore
from broker.auth.files import change_credentials, load_credentials
from broker.auth.permissions import CONSUMER_REQUESTS, copied_streams
from broker.report import CredentialsReport, CredentialsRequest
from broker.topology import site_api, site_prefix
from nats_logship.app.exits import OperatorError
from nats_logship.app.text import printable
from nats_logship.app.timestamps import SECOND
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection, Message
from nats_logship.client.error_codes import ErrorCode

_AWAY = 0.5  # seconds until it listens again
_FLUSH = 3600  # seconds; a client that hears nothing is lost long before
_CREATE = "$JS.API.CONSUMER.CREATE"
_ACKNOWLEDGES = "$JS.ACK."
_LARGEST = 64 * 1024  # bytes of a request; ours have less than one KiB
_LONGEST_SUBJECT = 1024  # characters; two names of at most 255 bytes, and a host
_AT_ONCE = 64  # requests that JetStream is asked at a time
_NO_NAME = "the name of the consumer is none"
_REQUEST = {"stream_name", "config", "action"}
_CONFIG = {
    *("name", "durable_name", "description", "metadata"),
    *("filter_subject", "filter_subjects", "deliver_policy", "opt_start_seq", "opt_start_time"),
    *("ack_policy", "ack_wait", "max_ack_pending", "max_deliver", "replay_policy"),
    *("headers_only", "mem_storage", "num_replicas", "inactive_threshold", "max_waiting"),
}

# what nats-server (2.15.1) asks for to copy a stream: these values, and any of those names
_COPY_IS = {
    "ack_policy": "none",
    "direct": True,
    "sourcing": True,  # together with `direct`: a consumer of a new name, never an update
    "flow_control": True,
    "max_deliver": 1,
}
_COPY_HAS = {
    *("name", "deliver_subject", "deliver_policy", "opt_start_seq", "opt_start_time"),
    *("ack_wait", "idle_heartbeat", "inactive_threshold", "metadata"),
    *("replay_policy", "num_replicas"),
}
_COPY_NAME = re.compile(r"JS_(MIRROR|SRC)_[A-Za-z0-9]{1,64}")
# where nats-server itself hears answers: another server's, or one of another account
_COPY_ANSWER = re.compile(r"(\$JSC\.R|_R_)(\.[A-Za-z0-9]{1,64}){1,3}")
_COPY_HEADERS = ("Nats-Required-Api-Level", "Nats-Stream-Identity")
_LONGEST_INACTIVE = 60 * SECOND  # that a consumer outlives its site; nats-server asks for 10 s

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


def rewrite_pull_request(request: bytes) -> bytes | str:
    """Return a request as it may be passed on, written anew from known names (nats-server takes any case, and doubles), or why not."""
    match _read(request):
        case str() as refusal:
            return refusal
        case body, config:
            pass
    names = [config.get(field) for field in ("name", "durable_name")]
    if not all(name is None or (isinstance(name, str) and name.isprintable()) for name in names):
        return _NO_NAME
    if unknown := sorted((body.keys() - _REQUEST) | (config.keys() - _CONFIG)):
        return f"a host or a receiver may not set {_named(unknown)} of a consumer"
    return json.dumps(body).encode()


def rewrite_copy_request(request: bytes, site: str) -> bytes | str:
    """Return a request for a copy of the site `site` as it may be passed on, or why not.

    It makes a new consumer of a whole stream, which delivers to where only other sites listen.
    """
    match _read(request):
        case str() as refusal:
            return refusal
        case body, config:
            pass
    if unknown := sorted((body.keys() - _REQUEST) | (config.keys() - _COPY_HAS - _COPY_IS.keys())):
        return f"a site may not set {_named(unknown)} of a consumer"
    deliver = re.compile(rf"{re.escape(site_prefix(site))}\.[MS]\.[A-Za-z0-9]{{1,64}}")
    inactive = config.get("inactive_threshold")
    is_fit = {
        "name": _is_like(_COPY_NAME, config.get("name")),
        "deliver_subject": _is_like(deliver, config.get("deliver_subject")),
        "inactive_threshold": type(inactive) is int and 0 < inactive <= _LONGEST_INACTIVE,
        **{field: config.get(field) == value for field, value in _COPY_IS.items()},
    }
    if other := sorted(field for field, fits in is_fit.items() if not fits):
        return f"{_named(other)} is not that of a copy which a site may make"
    return json.dumps({"stream_name": body.get("stream_name"), "config": config}).encode()


def _is_like(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _named(fields: Sequence[str]) -> str:
    return printable(", ".join(fields)[:200])


def _read(request: bytes) -> tuple[Mapping[str, Any], Mapping[str, Any]] | str:
    """Return the body of a request for a consumer and its configuration, or why there is none."""
    try:
        body = json.loads(request) if len(request) <= _LARGEST else None
        json.dumps(body)  # what is nested too deeply cannot be written
    except (ValueError, RecursionError):
        body = None
    config = body.get("config") if isinstance(body, Mapping) else None
    if not isinstance(body, Mapping) or not isinstance(config, Mapping):
        return "the request is no JSON object with a configuration"
    return body, config


class ConsumerRequests:
    """Takes the requests, each by one broker of a cluster, and passes over others for a consumer while one is under way."""

    def __init__(self, connection: Connection, site: str = "", lines: Sequence[str] = ()) -> None:
        """Take none yet; other sites may copy the streams `lines` from `site`, if it has a name."""
        self._connection = connection
        self._site = site
        self._copied = copied_streams(lines) if site else ()
        self.listens = asyncio.Event()
        """Set from when requests are heard for the first time."""
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._passing: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Take requests until cancelled, and leave none under way."""
        handlers: dict[str, Handler] = {f"{CONSUMER_REQUESTS}.>": self._take}
        for name in self._copied:
            subject = f"{site_api(self._site)}.CONSUMER.CREATE.{name}"
            handlers[subject] = partial(self._take_copy, name)
        try:
            await listen(self._connection, handlers, self.listens, "logbroker")
        finally:
            for task in self._passing.values():
                task.cancel()

    async def _take(self, message: Message) -> None:
        asked = message.subject.removeprefix(f"{CONSUMER_REQUESTS}.")
        # where none is named, as in the requests of `logreceiver offsets`, each is for a consumer of its own
        key = asked if "." in asked else message.reply
        # the line to the server is bounded
        is_fit = len(asked) <= _LONGEST_SUBJECT and asked.isprintable()
        await self._answer(
            key, asked, rewrite_pull_request(message.data) if is_fit else _NO_NAME, message
        )

    async def _take_copy(self, stream: str, message: Message) -> None:
        # the answer is published in the account of the streams, where a reply may be any subject
        if _COPY_ANSWER.fullmatch(message.reply):
            request = rewrite_copy_request(message.data, self._site)
            await self._answer(message.reply, stream, request, message)

    async def _answer(self, key: str, asked: str, request: bytes | str, message: Message) -> None:
        """Refuse a request for the consumer `asked`, or begin to pass it on as `request`.

        Nothing is done while another request of the same `key` is under way.
        """
        if key in self._passing:
            return
        if isinstance(request, str):
            answer = {
                "type": "io.nats.jetstream.api.v1.consumer_create_response",
                "error": {
                    "code": 400,
                    "err_code": ErrorCode.CONSUMER_CREATE,
                    "description": request,
                },
            }
            await self._connection.publish(message.reply, json.dumps(answer).encode())
            return
        await self._gate.acquire()
        passing = self._pass_on(key, asked, request, message)
        self._passing[key] = asyncio.ensure_future(passing)

    async def _pass_on(self, key: str, asked: str, request: bytes, message: Message) -> None:
        headers = {
            name: value for name in _COPY_HEADERS if (value := (message.headers or {}).get(name))
        }
        try:
            # where JetStream does not answer nobody does, and the asker asks again
            with suppress(ConnectionLost, Rejected):
                answer = await self._connection.request(f"{_CREATE}.{asked}", request, headers)
                await self._connection.publish(
                    message.reply, answer.data, headers=dict(answer.headers or {})
                )
        finally:
            del self._passing[key]
            self._gate.release()


async def answer_credentials(
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
        report = await asyncio.to_thread(report_credentials, folder, name, error)
    except OperatorError as failure:
        report = CredentialsReport(name=name, error=error or str(failure))
    # thousands of credentials would not fit into a message as they are
    return zlib.compress(report.model_dump_json().encode())


def _revoke(folder: Path, request: CredentialsRequest) -> None:
    holders = [Holder(CredentialKind(kind), name) for kind, name in request.revoke]
    change_credentials(folder, lambda store: store.revoke(holders))


def report_credentials(folder: Path, name: str = "", error: str = "") -> CredentialsReport:
    """Return the credentials of a broker's directory; raises `OperatorError`."""
    store = load_credentials(folder)
    found = [one.model_dump(mode="json") for one in store.credentials]
    return CredentialsReport(name=name, secured=store.is_secured, credentials=found, error=error)
