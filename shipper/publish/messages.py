"""Asks the stream for the messages of one host, claims its subjects, and rebuilds its positions.

The consumer that reads back has a fixed name, so that an agent's rights can be limited to it: two agents of one host take
it from each other. Whoever did not get every message that the consumer gave out notices at the end, and reads again.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Any

import nats.errors

from broker.client.answer import stored_at
from broker.client.connection import Connection, ConnectionLost, Message, Rejected
from broker.wire.delivery import parse
from broker.wire.message import (
    Followed,
    MalformedMessage,
    Origin,
    decode_origin,
    encode_origin,
)
from broker.wire.positions import Covered, Positions
from broker.wire.streams import stream_names, stream_of
from broker.wire.subjects import Subject, host_filter, registry_consumer
from shipper.publish.stored import AgentId, HostMessage, Rebuilt

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

    `streams` is how many partitions are spread over. All methods raise `ConnectionLost` and `Rejected`.
    """

    def __init__(self, connection: Connection, host: str, streams: int) -> None:
        """Remember the host."""
        self.streams = streams
        self._connection = connection
        self._filter = host_filter(host)
        self._consumer = registry_consumer(host)

    async def newest(self, subject: Subject) -> HostMessage | None:
        """Return the last message of a subject, None when there is none (any more)."""
        return await self._last(self.stream_of(subject), str(subject))

    def stream_of(self, subject: Subject) -> str:
        """Return the stream that a subject is in."""
        return stream_of(subject.partition, self.streams)

    async def _last(self, stream: str, subjects: str) -> HostMessage | None:
        answer = await self._connection.call(f"DIRECT.GET.{stream}.{subjects}")
        headers = answer.headers or {}
        if "Nats-Sequence" not in headers and headers.get("Status") == _NO_MESSAGE:
            return None
        subject = headers.get("Nats-Subject", subjects)
        return HostMessage(int(headers["Nats-Sequence"]), _origin_of(answer), subject, stream)

    async def claim(
        self,
        subject: Subject,
        agent: AgentId,
        now: int,
        *,
        follows: tuple[Followed, ...] = (),
        moved: int | None = None,
    ) -> int:
        """Store an empty message, after which no older agent can publish on the subject; return its sequence.

        `now` in nanoseconds. The message says which partitions had the host's lines before, or that they have `moved` from
        here. After `ConnectionLost` it may be stored or not; a second claim does no harm.
        """
        headers = encode_origin(Origin(str(agent), now, follows=follows, moved=moved))
        return stored_at(await self._connection.ask(str(subject), b"", headers))

    def since(self, first: int, stream: str) -> AsyncIterator[list[HostMessage]]:
        """Yield all messages of a stream from sequence `first` on, oldest first, in pages.

        What came counts only if nothing is raised.
        """
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, first)}
        return self._read(stream, start)

    async def heads(self) -> list[HostMessage]:
        """Return the last message of each subject, in whatever stream it is."""
        found: list[HostMessage] = []
        for stream in await self._where():
            async for page in self._read(stream, {"deliver_policy": "last_per_subject"}):
                found += page
        return found

    async def _where(self) -> list[str]:
        """Return the streams that have something of the host."""
        names = stream_names(self.streams)
        if len(names) == 1:
            return [*names]
        last = await asyncio.gather(*(self._last(name, self._filter) for name in names))
        return [message.stream for message in last if message is not None]

    async def rebuild(self, known: Positions, agent: str = "", left: Iterable[str] = ()) -> Rebuilt:
        """Return the positions as the streams have them by now: the own one, and those that the host has `left`.

        `known` are the positions of a snapshot, or none.
        """
        rebuilt = Rebuilt(known, agent)
        for stream in dict.fromkeys((known.stream, *left)):
            covered = known.covered(stream)
            if covered is not None:
                if await self._replay(rebuilt, stream, covered.sequence) == covered:
                    continue
                logger.info(
                    "stream %s does not have the last message that the positions cover; reading all that it has",
                    stream,
                )
            await self._replay(rebuilt, stream, 1)
        return rebuilt

    async def _replay(self, rebuilt: Rebuilt, stream: str, first: int) -> Covered | None:
        """Take what a stream has from `first` on, and return what its first message is."""
        found: Covered | None = None
        async for page in self.since(first, stream):
            if page and found is None:
                found = page[0].covered
            rebuilt.take(page)
        return found

    async def _read(
        self, stream: str, start: Mapping[str, Any]
    ) -> AsyncIterator[list[HostMessage]]:
        config = {**self._config(), **start, "description": secrets.token_hex(8)}
        made = (await self._take(stream, config))["created"]
        count, is_last = 0, False
        while not is_last:
            page = await self._pull(stream)
            count, is_last = count + len(page), len(page) < _PAGE
            yield page
        # made anew with the same configuration, a consumer answers how it stands; another's is refused
        now = await self._create(stream, config)
        if now["created"] != made or now["delivered"]["consumer_seq"] != count:
            raise ConnectionLost("another agent of this host reads its lines back, too")
        await self._remove(stream)

    async def _take(self, stream: str, config: Mapping[str, Any]) -> dict[str, Any]:
        # mostly there is none, and a way to the broker and back is saved
        try:
            return await self._create(stream, config)
        except Rejected as error:
            if error.error not in _EXISTS:
                raise
        await self._remove(stream)
        return await self._create(stream, config)

    async def _create(self, stream: str, config: Mapping[str, Any]) -> dict[str, Any]:
        return await self._connection.api(
            f"CONSUMER.CREATE.{stream}.{self._consumer}.{self._filter}",
            {"stream_name": stream, "config": config, "action": "create"},
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

    async def _remove(self, stream: str) -> None:
        # who would answer for it may have died with its server
        among = self._connection.has_choice
        removal = f"CONSUMER.DELETE.{stream}.{self._consumer}"
        try:
            await self._connection.api(removal, patience=_SHORT if among else None)
        except Rejected:
            return
        except ConnectionLost:
            if not among:
                raise

    async def _pull(self, stream: str) -> list[HostMessage]:
        answers: asyncio.Queue[Message] = asyncio.Queue()
        subject = self._connection.api_now(f"CONSUMER.MSG.NEXT.{stream}.{self._consumer}")
        inbox = self._connection.new_inbox()
        subscription = await self._connection.subscribe(inbox, answers.put)
        try:
            await self._connection.publish(
                subject, json.dumps({"batch": _PAGE, "no_wait": True}).encode(), reply=inbox
            )
            return await self._connection.guard(_collect(stream, answers), self._patience, subject)
        finally:
            with suppress(nats.errors.Error):  # gone with its client
                await subscription.unsubscribe()


async def _collect(stream: str, answers: "asyncio.Queue[Message]") -> list[HostMessage]:
    page: list[HostMessage] = []
    while len(page) < _PAGE:
        message = await answers.get()
        if not message.reply:  # the broker's own word; a stranger's message may have any header
            status = (message.headers or {}).get("Status")
            if status in _END:
                break
            raise ConnectionLost(f"the consumer that reads back the own lines went away ({status})")
        delivery = parse(message.reply)
        if delivery is None:
            raise ConnectionLost("a message came that no consumer has delivered")
        origin = _origin_of(message)
        page.append(
            HostMessage(delivery.sequence, origin, message.subject, stream, delivery.stored_at)
        )
    return page


def _origin_of(message: Message) -> Origin | None:
    """Return where a message came from; None for what no agent of ours wrote, which says nothing about positions."""
    try:
        return decode_origin(message.headers)
    except MalformedMessage:
        return None
