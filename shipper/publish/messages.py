"""Asks the stream for the messages of one host, claims its subjects, and rebuilds its positions.

The consumer that reads back has a fixed name, so that an agent's rights can be limited to it: two agents of one host take
it from each other. Whoever did not get every message that the consumer gave out notices at the end, and reads again.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import nats.errors

from broker.client.answer import stored_at
from broker.client.connection import Connection, ConnectionLost, Message, Rejected
from broker.wire.message import (
    EXPECTED_SEQUENCE,
    Followed,
    MalformedMessage,
    Origin,
    decode_origin,
    encode_origin,
)
from broker.wire.positions import Positions
from broker.wire.streams import STREAM
from broker.wire.subjects import Subject, host_filter, registry_consumer
from shipper.publish.stored import AgentId, Rebuilt, Stored

__all__ = ["HostMessages"]

_PAGE = 2000  # messages
_PATIENCE, _PATIENCE_AMONG = 10.0, 4.0  # seconds; the second where the consumer's server may die
_SHORT = 1.0  # seconds for what may never be answered
_NO_MESSAGE = "404"
_END = {"404", "408"}
_EXISTS = {10013, 10148}  # a consumer of that name, or one that is about to go
logger = logging.getLogger(__name__)


class HostMessages:
    """The messages of one host on all its subjects, whatever the number of partitions was when they were stored.

    All methods raise `ConnectionLost` and `Rejected`.
    """

    def __init__(self, connection: Connection, host: str) -> None:
        """Remember the host."""
        self._connection = connection
        self._filter = host_filter(host)
        self._consumer = registry_consumer(host)

    async def newest(self, subject: Subject) -> Stored | None:
        """Return the last message of a subject, None when there is none (any more)."""
        answer = await self._connection.call(f"DIRECT.GET.{STREAM}.{subject}")
        headers = answer.headers or {}
        if "Nats-Sequence" not in headers and headers.get("Status") == _NO_MESSAGE:
            return None
        return Stored(int(headers["Nats-Sequence"]), _origin_of(answer), str(subject))

    async def claim(
        self,
        subject: Subject,
        agent: AgentId,
        now: int,
        expected: int | None = None,
        *,
        follows: tuple[Followed, ...] = (),
        moved: int | None = None,
    ) -> int:
        """Store an empty message, after which no older agent can publish on the subject; return its sequence.

        `now` in nanoseconds; refused if the subject's last sequence is not `expected`, where that is given. It says which
        partitions had the host's lines before, or that they have `moved` from here. After `ConnectionLost` it may be stored
        or not; a second claim does no harm.
        """
        headers = encode_origin(Origin(str(agent), now, follows=follows, moved=moved))
        if expected is not None:
            headers[EXPECTED_SEQUENCE] = str(expected)
        return stored_at(await self._connection.ask(str(subject), b"", headers))

    def since(self, first: int) -> AsyncIterator[list[Stored]]:
        """Yield all messages from sequence `first` on, oldest first, in pages; what came counts only if nothing is raised."""
        return self._read({"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, first)})

    async def heads(self) -> list[Stored]:
        """Return the last message of each subject."""
        start = {"deliver_policy": "last_per_subject"}
        return [message async for page in self._read(start) for message in page]

    async def rebuild(self, known: Positions, agent: str = "") -> Rebuilt:
        """Return the positions as the stream has them by now; `known` are those of a snapshot, or none."""
        if known.sequence:
            rebuilt = await self._replay(known, agent, known.sequence)
            if rebuilt.begins_with(known):
                return rebuilt
            logger.info(
                "the stream does not have the last message that the positions cover; reading all that it has"
            )
        return await self._replay(known, agent, 1)

    async def _replay(self, known: Positions, agent: str, first: int) -> Rebuilt:
        rebuilt = Rebuilt(known, agent)
        async for page in self.since(first):
            rebuilt.take(page)
        return rebuilt

    async def _read(self, start: Mapping[str, Any]) -> AsyncIterator[list[Stored]]:
        config = {**self._config(), **start, "description": secrets.token_hex(8)}
        made = (await self._take(config))["created"]
        count, is_last = 0, False
        while not is_last:
            page = await self._pull()
            count, is_last = count + len(page), len(page) < _PAGE
            yield page
        # made anew with the same configuration, a consumer answers how it stands; another's is refused
        now = await self._create(config)
        if now["created"] != made or now["delivered"]["consumer_seq"] != count:
            raise ConnectionLost("another agent of this host reads its lines back, too")
        await self._let_go()

    async def _take(self, config: Mapping[str, Any]) -> dict[str, Any]:
        # mostly there is none, and a way to the broker and back is saved
        try:
            return await self._create(config)
        except Rejected as error:
            if error.error not in _EXISTS:
                raise
        await self._remove()
        return await self._create(config)

    async def _create(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return await self._connection.api(
            f"CONSUMER.CREATE.{STREAM}.{self._consumer}.{self._filter}",
            {"stream_name": STREAM, "config": config, "action": "create"},
            patience=self._patience,
        )

    @property
    def _patience(self) -> float:
        return _PATIENCE_AMONG if self._connection.has_choice else _PATIENCE

    def _config(self) -> dict[str, Any]:
        return {
            "name": self._consumer,
            "ack_policy": "none",
            "filter_subject": self._filter,
            "headers_only": True,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 30_000_000_000,
        }

    async def _remove(self) -> None:
        # who would answer for it may have died with its server
        among = self._connection.has_choice
        try:
            await self._connection.api(self._removal, patience=_SHORT if among else None)
        except Rejected:
            return
        except ConnectionLost:
            if not among:
                raise

    async def _let_go(self) -> None:
        connection = self._connection
        if connection.has_choice:
            # a removal of which not all servers know yet is in the way of the next consumer
            await self._remove()
            return
        # whose answer nobody waits for: should the next creation come before it, that is refused and tried again
        subject = connection.api_now(self._removal)
        await connection.publish(subject, reply=connection.new_inbox())

    @property
    def _removal(self) -> str:
        return f"CONSUMER.DELETE.{STREAM}.{self._consumer}"

    async def _pull(self) -> list[Stored]:
        answers: asyncio.Queue[Message] = asyncio.Queue()
        subject = self._connection.api_now(f"CONSUMER.MSG.NEXT.{STREAM}.{self._consumer}")
        inbox = self._connection.new_inbox()
        subscription = await self._connection.subscribe(inbox, answers.put)
        try:
            await self._connection.publish(
                subject, json.dumps({"batch": _PAGE, "no_wait": True}).encode(), reply=inbox
            )
            return await self._connection.guard(_collect(answers), self._patience, subject)
        finally:
            with suppress(nats.errors.Error):  # gone with its client
                await subscription.unsubscribe()


async def _collect(answers: "asyncio.Queue[Message]") -> list[Stored]:
    page: list[Stored] = []
    while len(page) < _PAGE:
        message = await answers.get()
        if not message.reply:  # the broker's own word; a stranger's message may have any header
            status = (message.headers or {}).get("Status")
            if status in _END:
                break
            raise ConnectionLost(f"the consumer that reads back the own lines went away ({status})")
        sequence = message.metadata.sequence.stream
        page.append(Stored(sequence, _origin_of(message), message.subject))
    return page


def _origin_of(message: Message) -> Origin | None:
    """Return where a message came from; None for what no agent of ours wrote, which says nothing about positions."""
    try:
        return decode_origin(message.headers)
    except MalformedMessage:
        return None
