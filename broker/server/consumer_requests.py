"""Answers CONSUMER.CREATE of hosts, receivers and other sites, and passes on harmless requests.

A NATS right names the consumer that a client may create, but not its configuration. A consumer
that pushes would deliver inside the account of the streams, for example to the inbox of somebody
else. So hosts and receivers create consumers only through logbroker, which refuses those that push.

nats-server of another site creates consumers that push, for its copies. Of these logbroker passes
on new consumers of a whole stream that deliver to `SITE.<ours>`, which only that site receives.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from broker.auth.permissions import CONSUMER_REQUESTS, list_copied_streams
from broker.server.requests import Handler, listen
from broker.topology import site_api, site_prefix
from nats_logship.app.text import printable
from nats_logship.app.timestamps import SECOND
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection, Message
from nats_logship.client.error_codes import ErrorCode

_CREATE = "$JS.API.CONSUMER.CREATE"
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
"""What a host or a receiver may configure: everything of a consumer that is pulled from."""

_COPY_VALUES = {
    "ack_policy": "none",
    "direct": True,
    "sourcing": True,  # together with `direct`: a consumer of a new name, never an update
    "flow_control": True,
    "max_deliver": 1,
}
"""What nats-server (2.15.1) always asks for to copy a stream."""
_COPY_CONFIG = {
    *("name", "deliver_subject", "deliver_policy", "opt_start_seq", "opt_start_time"),
    *("ack_wait", "idle_heartbeat", "inactive_threshold", "metadata"),
    *("replay_policy", "num_replicas"),
}
"""What else it may ask for."""
_COPY_NAME = re.compile(r"JS_(MIRROR|SRC)_[A-Za-z0-9]{1,64}")
# where a nats-server waits for answers: another server's, or those of another account
_COPY_ANSWER = re.compile(r"(\$JSC\.R|_R_)(\.[A-Za-z0-9]{1,64}){1,3}")
_COPY_HEADERS = ("Nats-Required-Api-Level", "Nats-Stream-Identity")
_LONGEST_INACTIVE = 60 * SECOND  # that a consumer outlives its site; nats-server asks for 10 s


def rewrite_pull_request(request: bytes) -> bytes | str:
    """Return the request of a host or a receiver as it may be passed on, or why it is refused.

    It is written again from known names, since nats-server takes any case, and names twice.
    """
    match _read(request):
        case str() as refusal:
            return refusal
        case body, config:
            pass
    names = [config.get(field) for field in ("name", "durable_name")]
    if not all(name is None or (isinstance(name, str) and name.isprintable()) for name in names):
        return _BAD_NAME
    if unknown := sorted((body.keys() - _REQUEST) | (config.keys() - _PULL_CONFIG)):
        return f"a host or a receiver may not set {_join(unknown)} of a consumer"
    return json.dumps(body).encode()


def rewrite_copy_request(request: bytes, site: str) -> bytes | str:
    """Return a request for a copy of the site `site` as it may be passed on, or why it is refused.

    What is passed on creates a new consumer of a whole stream that delivers to other sites only.
    """
    match _read(request):
        case str() as refusal:
            return refusal
        case body, config:
            pass
    known = _COPY_CONFIG | _COPY_VALUES.keys()
    if unknown := sorted((body.keys() - _REQUEST) | (config.keys() - known)):
        return f"a site may not set {_join(unknown)} of a consumer"
    deliver = re.compile(rf"{re.escape(site_prefix(site))}\.[MS]\.[A-Za-z0-9]{{1,64}}")
    inactive = config.get("inactive_threshold")
    is_fit = {
        "name": _matches(_COPY_NAME, config.get("name")),
        "deliver_subject": _matches(deliver, config.get("deliver_subject")),
        "inactive_threshold": type(inactive) is int and 0 < inactive <= _LONGEST_INACTIVE,
        **{field: config.get(field) == value for field, value in _COPY_VALUES.items()},
    }
    if unfit := sorted(field for field, fits in is_fit.items() if not fits):
        return f"{_join(unfit)} differs from that of a copy"
    return json.dumps({"stream_name": body.get("stream_name"), "config": config}).encode()


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _join(fields: Sequence[str]) -> str:
    return printable(", ".join(fields)[:200])


def _read(request: bytes) -> tuple[Mapping[str, Any], Mapping[str, Any]] | str:
    """Return the body of a request and the configuration in it, or why there is none."""
    try:
        body = json.loads(request) if len(request) <= _LARGEST else None
        json.dumps(body)  # fails for a body that is nested too deeply to be passed on
    except (ValueError, RecursionError):
        body = None
    config = body.get("config") if isinstance(body, Mapping) else None
    if not isinstance(body, Mapping) or not isinstance(config, Mapping):
        return "the request is no JSON object with a configuration"
    return body, config


class ConsumerRequests:
    """Answers the requests; in a cluster each request reaches one broker.

    A request for a consumer is ignored while another one for the same consumer is under way.
    """

    def __init__(self, connection: Connection, site: str = "", lines: Sequence[str] = ()) -> None:
        """Answer nothing yet; other sites may copy the streams `lines` if `site` is not empty."""
        self._connection = connection
        self._site = site
        self._copied = list_copied_streams(lines) if site else ()
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
        # a request that names no consumer, as of `logreceiver offsets`, makes one of its own
        key = asked if "." in asked else message.reply
        # a protocol line to the server has a largest length
        is_fit = len(asked) <= _LONGEST_SUBJECT and asked.isprintable()
        request = rewrite_pull_request(message.data) if is_fit else _BAD_NAME
        await self._answer(key, asked, request, message)

    async def _take_copy_request(self, stream: str, message: Message) -> None:
        # the answer is published in the account of the streams, where other subjects are dangerous
        if _COPY_ANSWER.fullmatch(message.reply):
            request = rewrite_copy_request(message.data, self._site)
            await self._answer(message.reply, stream, request, message)

    async def _answer(self, key: str, asked: str, request: bytes | str, message: Message) -> None:
        """Refuse a request for the consumer `asked` (a text), or start to pass it on (bytes)."""
        if key in self._passing:
            return
        if isinstance(request, str):
            await self._refuse(message, request)
            return
        await self._gate.acquire()
        passing = self._pass_on(key, asked, request, message)
        self._passing[key] = asyncio.ensure_future(passing)

    async def _refuse(self, message: Message, reason: str) -> None:
        answer = {
            "type": "io.nats.jetstream.api.v1.consumer_create_response",
            "error": {
                "code": 400,
                "err_code": ErrorCode.CONSUMER_CREATE,
                "description": reason,
            },
        }
        await self._connection.publish(message.reply, json.dumps(answer).encode())

    async def _pass_on(self, key: str, asked: str, request: bytes, message: Message) -> None:
        headers = {
            name: value for name in _COPY_HEADERS if (value := (message.headers or {}).get(name))
        }
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
