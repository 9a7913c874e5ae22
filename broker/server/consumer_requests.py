"""Takes the requests of hosts and receivers for consumers, and passes on to JetStream those for consumers that are pulled from.

Rights name which consumer a credential may make, yet not what it is made to do. One that pushes would have the server
publish inside the account of the stream, where hosts and receivers have no rights: to a bucket, to another's inbox. So
their accounts have no way to CONSUMER.CREATE but this one.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from broker.app.untrusted import printable
from broker.auth.accounts import CONSUMER_REQUESTS
from broker.client.connection import Connection, ConnectionLost, Message, Rejected
from broker.server.speaking import Listening

__all__ = ["ConsumerRequests", "pulled_only"]

_CREATE = "$JS.API.CONSUMER.CREATE"
_LARGEST = 64 * 1024  # bytes of a request; ours have less than one KiB
_LONGEST_SUBJECT = 1024  # characters; two names of at most 255 bytes, and a host
_WAITING = 8 * 1024**2  # bytes of requests that may wait; thousands of shippers may start at once
_AT_ONCE = 64  # requests that JetStream is asked at a time
_REFUSED = 10012  # JetStream's error for a consumer that cannot be made
_NAMED = 1000  # consumers of which a refusal is said once
_REQUEST = frozenset({"stream_name", "config", "action"})
_CONFIG = frozenset(
    {
        *("name", "durable_name", "description", "metadata"),
        *("filter_subject", "filter_subjects", "deliver_policy", "opt_start_seq", "opt_start_time"),
        *("ack_policy", "ack_wait", "max_ack_pending", "max_deliver", "replay_policy"),
        *("headers_only", "mem_storage", "num_replicas", "inactive_threshold", "max_waiting"),
    }
)
logger = logging.getLogger(__name__)


def pulled_only(request: bytes) -> bytes | str:
    """Return a request as it may be passed on, or why not.

    It is written anew from known names: nats-server takes names in any case, and the last of those that are there twice.
    """
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
    """Takes the requests; of several brokers of a cluster, one takes each.

    While one for a consumer is under way others for it are passed over: who sends thousands holds up nobody else.
    """

    def __init__(self, connection: Connection) -> None:
        """Take none yet."""
        self._connection = connection
        self._listening = Listening(
            connection, f"{CONSUMER_REQUESTS}.>", self._take, "logbroker", _WAITING
        )
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._passing: dict[str, asyncio.Task[None]] = {}
        self._refused: set[str] = set()

    @property
    def listens(self) -> asyncio.Event:
        """Set from when requests are heard for the first time."""
        return self._listening.listens

    async def run(self) -> None:
        """Take requests until cancelled, and leave none under way."""
        try:
            await self._listening.run()
        finally:
            for task in self._passing.values():
                task.cancel()

    async def _take(self, message: Message) -> None:
        asked = message.subject.removeprefix(f"{CONSUMER_REQUESTS}.")
        # where none is named, as in the requests of `logreceiver offsets`, each is for a consumer of its own
        key = asked if "." in asked else message.reply
        if not message.reply or key in self._passing:
            return
        taken = pulled_only(message.data) if _is_fit(asked) else "the name of the consumer is none"
        if isinstance(taken, str):
            self._say_refused(asked, taken)
            await self._connection.publish(message.reply, _refusal(taken))
            return
        await self._gate.acquire()
        if key in self._passing:  # begun while this one waited
            self._gate.release()
            return
        self._passing[key] = asyncio.ensure_future(self._pass_on(asked, taken, message.reply))
        self._passing[key].add_done_callback(lambda _: self._passed(key))

    async def _pass_on(self, asked: str, request: bytes, reply: str) -> None:
        # where JetStream does not answer nobody does, and the asker asks again
        with suppress(ConnectionLost, Rejected):
            answer = await self._connection.request(f"{_CREATE}.{asked}", request)
            await self._connection.publish(reply, answer.data)

    def _passed(self, key: str) -> None:
        del self._passing[key]
        self._gate.release()

    def _say_refused(self, asked: str, why: str) -> None:
        if asked not in self._refused and len(self._refused) < _NAMED:
            self._refused.add(asked)
            logger.warning("refused to make the consumer %r: %s", asked[:_LONGEST_SUBJECT], why)


def _is_fit(asked: str) -> bool:
    """Whether a stream, a consumer and a filter can be what a request's subject says; the line to the server is bounded."""
    return len(asked) <= _LONGEST_SUBJECT and asked.isprintable()


def _refusal(why: str) -> bytes:
    answer: dict[str, Any] = {
        "type": "io.nats.jetstream.api.v1.consumer_create_response",
        "error": {"code": 400, "err_code": _REFUSED, "description": why},
    }
    return json.dumps(answer).encode()
