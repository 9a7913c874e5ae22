"""Receives requests to logbroker: for credentials, and for consumers, of which harmless ones pass.

A NATS right names the consumer that a client may create, but not its configuration. A consumer
that pushes would deliver inside the account of the streams, for example to the inbox of another
client. So hosts and receivers create consumers only through logbroker, which refuses those that
push.

nats-server of another site copies a stream through a consumer that pushes. logbroker passes on its
request only for a new consumer of a whole stream that delivers to `SITE.<ours>`, which only that
site receives.
"""

import asyncio
import json
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from broker.auth.credentials import CredentialError, CredentialKind, Holder
from broker.auth.files import change_credentials, load_credentials
from broker.auth.permissions import CONSUMER_REQUESTS, list_copied_streams
from broker.report import CredentialsReport, CredentialsRequest
from broker.topology import site_api, site_prefix
from nats_logship.app.exits import OperatorError
from nats_logship.app.text import printable
from nats_logship.app.timestamps import SECOND
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection, Message
from nats_logship.client.error_codes import ErrorCode

_PAUSE = 0.5  # seconds until it subscribes again after a lost connection
_FLUSH = 3600  # seconds; a connection without answers is lost long before
_PATIENCE = 1.0  # seconds for the server's answer about its leaf nodes
_ACKNOWLEDGES = "$JS.ACK."
_LEAF_NODES = "$SYS.REQ.SERVER.PING.LEAFZ"

Handler = Callable[[Message], Awaitable[None]]


async def listen(
    connection: Connection, handlers: Mapping[str, Handler], listens: asyncio.Event, queue: str = ""
) -> None:
    """Call the handler of a subject for each request until cancelled, also after a lost connection.

    With a `queue`, each request reaches one of the brokers of a cluster. `listens` is set once the
    server has the subscriptions.
    """

    async def take(handle: Handler, message: Message) -> None:
        # another site may have a consumer push lines here; their reply subject acknowledges them
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
        await asyncio.sleep(_PAUSE)


async def answer_credentials(
    folder: Path, name: str, reload: Callable[[], Awaitable[None]], message: Message
) -> bytes:
    """Revoke the credentials that an admin names, and return the answer of the broker `name`.

    Only admins can ask: the subject is in the account of the streams. `reload` puts the changed
    credentials in force. The answer is a `CredentialsReport`, compressed with zlib.
    """
    error = ""
    try:
        request = CredentialsRequest.model_validate_json(message.data or b"{}")
        if request.revoke:
            holders = [Holder(CredentialKind(kind), name) for kind, name in request.revoke]
            await asyncio.to_thread(change_credentials, folder, lambda store: store.revoke(holders))
            await reload()
    except (ValidationError, CredentialError, OperatorError) as failure:
        error = str(failure)
    try:
        report = await asyncio.to_thread(report_credentials, folder, name, error)
    except OperatorError as failure:
        report = CredentialsReport(name=name, error=error or str(failure))
    # uncompressed, thousands of credentials would exceed the largest message
    return zlib.compress(report.model_dump_json().encode())


def report_credentials(folder: Path, name: str = "", error: str = "") -> CredentialsReport:
    """Return the credentials of a broker's directory; raises `OperatorError`."""
    store = load_credentials(folder)
    return CredentialsReport(
        name=name,
        secured=store.is_secured,
        credentials=[one.model_dump(mode="json") for one in store.credentials],
        error=error,
    )


async def count_site_links(connection: Connection, server: str) -> int | None:
    """Return the number of remote sites that a server is connected to; None without an answer."""
    question = json.dumps({"server_name": server, "exact_match": True}).encode()
    try:
        answer = await connection.request(_LEAF_NODES, question, patience=_PATIENCE)
        leaves = json.loads(answer.data)["data"].get("leafs") or ()
    except (ConnectionLost, Rejected, ValueError, KeyError):
        return None
    return sum(bool(one.get("is_spoke")) for one in leaves)


_CREATE = "$JS.API.CONSUMER.CREATE"
# a durable consumer keeps lines from being purged, also once its client is gone
_NEVER_DURABLE = re.compile(r"(count|reader|shipper|wake)-.*")
_LARGEST = 64 * 1024  # bytes of a request; ours have less than one KiB
_LONGEST_SUBJECT = 1024  # characters; two names of at most 255 bytes, and a host
_AT_ONCE = 64  # requests under way at JetStream
_BAD_NAME = "this is not a valid name of a consumer"
_REQUEST = {"stream_name", "config", "action"}
_PULL_CONFIG = {
    *("name", "durable_name", "description", "metadata"),
    *("filter_subject", "filter_subjects", "deliver_policy", "opt_start_seq", "opt_start_time"),
    *("ack_policy", "ack_wait", "max_ack_pending", "max_deliver", "replay_policy"),
    *("headers_only", "mem_storage", "num_replicas", "inactive_threshold", "max_waiting"),
}
"""The fields that a host or a receiver may set: those of a consumer that is pulled from."""

_COPY_VALUES = {
    "ack_policy": "none",
    "direct": True,
    "sourcing": True,  # together with `direct`: a consumer of a new name, never an update
    "flow_control": True,
    "max_deliver": 1,
}
"""The values that nats-server (2.15.1) always asks for to copy a stream."""
_COPY_CONFIG = {
    *("name", "deliver_subject", "deliver_policy", "opt_start_seq", "opt_start_time"),
    *("ack_wait", "idle_heartbeat", "inactive_threshold", "metadata"),
    *("replay_policy", "num_replicas"),
}
"""Further fields that it may set."""
_COPY_NAME = re.compile(r"JS_(MIRROR|SRC)_[A-Za-z0-9]{1,64}")
# where a nats-server waits for answers: another server's, or those of another account
_COPY_ANSWER = re.compile(r"(\$JSC\.R|_R_)(\.[A-Za-z0-9]{1,64}){1,3}")
_COPY_HEADERS = ("Nats-Required-Api-Level", "Nats-Stream-Identity")
_LONGEST_INACTIVE = 60 * SECOND  # that a consumer outlives its site; nats-server asks for 10 s


class RefusedRequest(ValueError):
    """A request that is not passed on; the text is the reason."""


def rewrite_pull_request(request: bytes) -> bytes:
    """Return the request of a host or a receiver as it may be passed on; raises `RefusedRequest`.

    The request is written again: nats-server ignores the case of fields, and takes the last of two.
    """
    body, config = _read(request, _PULL_CONFIG, "a host or a receiver")
    names = [config.get(field) for field in ("name", "durable_name")]
    if not all(name is None or (isinstance(name, str) and name.isprintable()) for name in names):
        raise RefusedRequest(_BAD_NAME)
    if _matches(_NEVER_DURABLE, config.get("durable_name")):
        raise RefusedRequest("a consumer of this name may not be durable")
    return json.dumps(body).encode()


def rewrite_copy_request(request: bytes, site: str) -> bytes:
    """Return the request for a copy of our site `site` as it may be passed on.

    It creates a new consumer of a whole stream that delivers to other sites only. Raises
    `RefusedRequest`.
    """
    body, config = _read(request, _COPY_CONFIG | _COPY_VALUES.keys(), "a site")
    deliver = re.compile(rf"{re.escape(site_prefix(site))}\.[MS]\.[A-Za-z0-9]{{1,64}}")
    inactive = config.get("inactive_threshold")
    is_fit = {
        "name": _matches(_COPY_NAME, config.get("name")),
        "deliver_subject": _matches(deliver, config.get("deliver_subject")),
        "inactive_threshold": type(inactive) is int and 0 < inactive <= _LONGEST_INACTIVE,
        **{field: config.get(field) == value for field, value in _COPY_VALUES.items()},
    }
    if unfit := sorted(field for field, fits in is_fit.items() if not fits):
        raise RefusedRequest(f"{', '.join(unfit)} differs from that of a copy")
    return json.dumps({"stream_name": body.get("stream_name"), "config": config}).encode()


def _check_subject(asked: str) -> None:
    # a protocol line to the server has a largest length
    if len(asked) > _LONGEST_SUBJECT or not asked.isprintable():
        raise RefusedRequest(_BAD_NAME)


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _read(request: bytes, known: Set[str], who: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the body of a request, and the configuration in it, which has only `known` fields.

    Raises `RefusedRequest`; `who` is the sender, for its text.
    """
    try:
        body = json.loads(request) if len(request) <= _LARGEST else None
        json.dumps(body)  # fails for a body that is nested too deeply to be passed on
    except (ValueError, RecursionError):
        body = None
    config = body.get("config") if isinstance(body, Mapping) else None
    if not isinstance(body, Mapping) or not isinstance(config, Mapping):
        raise RefusedRequest("the request is no JSON object with a configuration")
    if unknown := sorted((body.keys() - _REQUEST) | (config.keys() - known)):
        fields = printable(", ".join(unknown)[:200])
        raise RefusedRequest(f"{who} may not set {fields} of a consumer")
    return body, config


class ConsumerRequests:
    """Answers the requests; in a cluster each request reaches one broker."""

    def __init__(self, connection: Connection, site: str = "", names: Sequence[str] = ()) -> None:
        """Answer nothing yet; other sites may copy the streams `names` if our `site` has a name."""
        self._connection = connection
        self._site = site
        self._copied = list_copied_streams(names) if site else ()
        self.listens = asyncio.Event()
        """Set once requests are received."""
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._passing: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Answer requests until cancelled; then cancel those under way."""
        handlers: dict[str, Handler] = {f"{CONSUMER_REQUESTS}.>": self._take_pull_request}
        for name in self._copied:
            subject = f"{site_api(self._site)}.CONSUMER.CREATE.{name}"
            handlers[subject] = partial(self._take_copy_request, name)
        try:
            await listen(self._connection, handlers, self.listens, "logbroker")
        finally:
            for task in self._passing.values():
                task.cancel()

    async def _take_pull_request(self, message: Message) -> None:
        asked = message.subject.removeprefix(f"{CONSUMER_REQUESTS}.")
        # a request that names no consumer makes one of its own
        key = asked if "." in asked else message.reply
        await self._answer(key, asked, message, rewrite_pull_request)

    async def _take_copy_request(self, stream: str, message: Message) -> None:
        # the answer is published in the account of the streams, where other subjects are dangerous
        if _COPY_ANSWER.fullmatch(message.reply):
            rewrite = partial(rewrite_copy_request, site=self._site)
            await self._answer(message.reply, stream, message, rewrite)

    async def _answer(
        self, key: str, asked: str, message: Message, rewrite: Callable[[bytes], bytes]
    ) -> None:
        """Refuse a request for a consumer, or start to pass it on; `asked` ends the API's subject.

        A request is ignored while another one with the same `key` is under way.
        """
        if key in self._passing:
            return
        try:
            _check_subject(asked)
            request = rewrite(message.data)
        except RefusedRequest as refused:
            await self._refuse(message, str(refused))
            return
        await self._gate.acquire()
        passing = self._pass_on(key, asked, request, message)
        self._passing[key] = asyncio.ensure_future(passing)

    async def _refuse(self, message: Message, reason: str) -> None:
        error = {"code": 400, "err_code": ErrorCode.CONSUMER_CREATE, "description": reason}
        answer = {"type": "io.nats.jetstream.api.v1.consumer_create_response", "error": error}
        await self._connection.publish(message.reply, json.dumps(answer).encode())

    async def _pass_on(self, key: str, asked: str, request: bytes, message: Message) -> None:
        given = message.headers or {}
        headers = {name: given[name] for name in _COPY_HEADERS if given.get(name)}
        try:
            # without an answer of JetStream the client gets none either, and asks again
            with suppress(ConnectionLost, Rejected):
                answer = await self._connection.request(f"{_CREATE}.{asked}", request, headers)
                await self._connection.publish(
                    message.reply, answer.data, headers=dict(answer.headers or {})
                )
        finally:
            del self._passing[key]
            self._gate.release()
