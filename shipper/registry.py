"""The own subject of an agent as the stream has it: its newest message, its headers, and the claim on it.

Reads headers only and writes claims only; lines are the publisher's. Every API subject names the own subject, so that
an agent's rights can end there (research on least rights: filter in the subject of CONSUMER.CREATE).
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import nats.errors

from broker.block import MalformedBlock, Origin, decode_origin, encode_origin
from broker.connection import Connection, ConnectionLost, Message, Rejected
from broker.subjects import Subject, registry_consumer
from broker.topology import STREAM
from shipper.agent_id import AgentId
from shipper.verdict import Stored

__all__ = ["Registry"]

_PAGE = 1000  # messages
_PATIENCE = 10.0  # seconds
_NO_MESSAGE = "404"


class Registry:
    """Reads back what the stream holds of one host."""

    def __init__(self, connection: Connection, subject: Subject, api: str = "$JS.API") -> None:
        """Remember the subject; `api` is the prefix of consumer requests where an account imports them renamed."""
        self._connection = connection
        self._subject = str(subject)
        self._consumer = registry_consumer(subject.host)
        self._api = f"{api}.CONSUMER"

    @property
    def subject(self) -> str:
        """The subject that this host's lines are published on."""
        return self._subject

    async def newest(self) -> Stored | None:
        """Return the last message of the subject, None when there is none (any more).

        Raises `Rejected` when there is no such stream, `ConnectionLost`.
        """
        answer = await self._connection.request(f"$JS.API.DIRECT.GET.{STREAM}.{self._subject}")
        headers = answer.headers or {}
        if headers.get("Status") == _NO_MESSAGE:
            return None
        return Stored(int(headers["Nats-Sequence"]), _origin(answer))

    async def claim(self, agent: AgentId, now: int) -> int:
        """Take the subject: store an empty message, after which no older agent can publish; return its sequence.

        `now` in nanoseconds. After `ConnectionLost` it may be stored or not; a second claim does no harm.
        """
        origin = Origin(str(agent), "", None, None, 0, now)
        answer = await self._connection.ask(self._subject, b"", encode_origin(origin))
        return int(answer["seq"])

    async def read(self, first: int, take: Callable[[Sequence[Stored]], None]) -> None:
        """Hand all messages from sequence `first` on to `take`, oldest first, in pages that are never empty.

        Raises `ConnectionLost` or `Rejected`; `take` may have seen a part then.
        """
        await self._remove_consumer()
        await self._connection.ask(
            f"{self._api}.CREATE.{STREAM}.{self._consumer}.{self._subject}",
            json.dumps({"stream_name": STREAM, "config": self._config(first)}).encode(),
            patience=_PATIENCE,
        )
        while page := await self._pull():
            take(page)
        await self._remove_consumer()

    def _config(self, first: int) -> dict[str, Any]:
        return {
            "name": self._consumer,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(1, first),
            "ack_policy": "none",
            "filter_subject": self._subject,
            "headers_only": True,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 30_000_000_000,
        }

    async def _remove_consumer(self) -> None:
        with suppress(Rejected):  # mostly there is none, and one left over ends by itself
            await self._connection.ask(f"{self._api}.DELETE.{STREAM}.{self._consumer}")

    async def _pull(self) -> list[Stored]:
        answers: asyncio.Queue[Message] = asyncio.Queue()
        inbox = self._connection.new_inbox()
        subscription = await self._connection.subscribe(inbox, answers.put)
        try:
            await self._connection.publish(
                f"{self._api}.MSG.NEXT.{STREAM}.{self._consumer}",
                json.dumps({"batch": _PAGE, "no_wait": True}).encode(),
                reply=inbox,
            )
            return await self._connection.guard(_collect(answers), _PATIENCE)
        finally:
            with suppress(nats.errors.Error):  # gone with its client
                await subscription.unsubscribe()


async def _collect(answers: "asyncio.Queue[Message]") -> list[Stored]:
    page: list[Stored] = []
    while len(page) < _PAGE:
        message = await answers.get()
        status = (message.headers or {}).get("Status")
        if status == "409":
            raise ConnectionLost("the consumer that reads back the own lines went away")
        if status:
            break
        page.append(Stored(message.metadata.sequence.stream, _origin(message)))
    return page


def _origin(message: Message) -> Origin | None:
    try:
        return decode_origin(message.headers)
    except MalformedBlock:
        return None  # not written by an agent of ours; that's fine, it says nothing about positions
