"""Rebuilds positions from a snapshot and the headers of the host's messages behind it, read through a throw-away consumer.

The consumer's name is fixed, so that an agent's rights can be: two agents of one host take it from each other. Whoever
did not get every message that the consumer gave out notices at the end, and reads again.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import nats.errors

from broker.client.connection import Connection, ConnectionLost, Message, Rejected
from broker.wire.message import MalformedMessage, Origin, decode_origin
from broker.wire.streams import STREAM
from broker.wire.subjects import host_filter, registry_consumer
from shipper.positions import Positions
from shipper.publish.stored import Stored

__all__ = ["ReadBack", "origin_of", "rebuild"]

_PAGE = 2000  # messages
_PATIENCE, _PATIENCE_AMONG = (
    10.0,
    4.0,
)  # seconds; the second where the server of the consumer may have died
_SHORT = 1.0  # seconds for what may never be answered
_END = {"404", "408"}
_EXISTS = {10013, 10148}  # a consumer of that name, or one that is about to go


class ReadBack:
    """Reads what the stream holds on all subjects of one host, whatever the number of partitions was."""

    def __init__(self, connection: Connection, host: str) -> None:
        """Remember the host."""
        self._connection = connection
        self._filter = host_filter(host)
        self._consumer = registry_consumer(host)

    async def since(self, first: int, take: Callable[[Sequence[Stored]], None]) -> None:
        """Hand all messages from sequence `first` on to `take`, oldest first, in pages that are never empty.

        Raises `ConnectionLost` or `Rejected`; `take` may have seen a part then, or what was not meant for it.
        """
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, first)}
        await self._read(start, take)

    async def heads(self) -> list[Stored]:
        """Return the last message of each subject of the host; raises as `since`."""
        found: list[Stored] = []
        await self._read({"deliver_policy": "last_per_subject"}, found.extend)
        return found

    async def _read(
        self, start: Mapping[str, Any], take: Callable[[Sequence[Stored]], None]
    ) -> None:
        config = {**self._config(), **start, "description": secrets.token_hex(8)}
        made = (await self._take(config))["created"]
        count, is_last = 0, False
        while not is_last:
            page = await self._pull()
            count, is_last = count + len(page), len(page) < _PAGE
            if page:
                take(page)
        # made anew with the same configuration, a consumer answers how it stands; another's is refused
        stands = await self._create(config)
        if stands["created"] != made or stands["delivered"]["consumer_seq"] != count:
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
        try:
            patience = _SHORT if self._connection.has_choice else None
            await self._connection.api(self._removal, patience=patience)
        except Rejected:
            return
        except ConnectionLost:
            if not self._connection.has_choice:
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


def origin_of(message: Message) -> Origin | None:
    """Return where a message came from; None for what no agent of ours wrote, which says nothing about positions."""
    try:
        return decode_origin(message.headers)
    except MalformedMessage:
        return None


async def _collect(answers: "asyncio.Queue[Message]") -> list[Stored]:
    page: list[Stored] = []
    while len(page) < _PAGE:
        message = await answers.get()
        if not message.reply:  # a word of the broker's; a stranger's message may have any header
            status = (message.headers or {}).get("Status")
            if status in _END:
                break
            raise ConnectionLost(f"the consumer that reads back the own lines went away ({status})")
        page.append(Stored(message.metadata.sequence.stream, origin_of(message), message.subject))
    return page


logger = logging.getLogger(__name__)


async def rebuild(stream: ReadBack, known: Positions) -> Positions:
    """Return the positions as the stream has them by now; `known` are those of a snapshot, or none.

    Raises `ConnectionLost` or `Rejected`.
    """
    if known.sequence:
        replay = _Replay(known)
        await stream.since(known.sequence, replay.take)
        if replay.begins_with(known):
            return replay.positions
        logger.info(
            "the stream does not have the last message that the positions cover; reading all that it has"
        )
    whole = _Replay(known)
    await stream.since(1, whole.take)
    return whole.positions


class _Replay:
    """Positions on their way from those of a snapshot to those of the stream."""

    def __init__(self, known: Positions) -> None:
        self.positions = known
        self._first: Stored | None = None

    def take(self, page: Sequence[Stored]) -> None:
        self._first = self._first or page[0]
        origins = [message.origin for message in page if message.origin is not None]
        self.positions = self.positions.advance(origins, page[-1].sequence)

    def begins_with(self, known: Positions) -> bool:
        first = self._first
        return (
            first is not None
            and first.sequence == known.sequence
            and first.origin is not None
            and first.origin.agent == known.agent
        )
