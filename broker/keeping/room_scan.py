"""Looks through the stream's messages in order, headers only, by a throw-away consumer. Decides nothing."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import nats.errors

from broker.client.connection import Arrived, Connection, ConnectionLost, Rejected
from broker.keeping.room_plan import Seen
from broker.wire.delivery import parse
from broker.wire.message import MalformedMessage, Origin, decode_origin
from broker.wire.streams import STREAM

__all__ = ["Scan"]

_PAGE = 1000  # messages
_PATIENCE = 30.0  # seconds for a page, for which the server may have to read some hundred MB
_RECORD, _HEADERS = 30, 4  # bytes that a stored message takes beside its own, filestore of 2.15


class Scan:
    """The messages of some subjects from a sequence on; used as a context, which removes the consumer."""

    def __init__(
        self, connection: Connection, first: int, filters: Sequence[str], *, origins: bool = False
    ) -> None:
        """Ask nothing yet. With `origins`, the headers are read for who wrote each message."""
        self._connection = connection
        self._origins = origins
        self._config: dict[str, Any] = {
            "ack_policy": "none",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(first, 1),
            "filter_subjects": list(filters),
            "headers_only": True,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 60_000_000_000,
        }
        self._name = ""
        self._number = 0

    async def __aenter__(self) -> "Scan":
        answer = await self._connection.api(
            f"CONSUMER.CREATE.{STREAM}",
            {"stream_name": STREAM, "config": self._config},
            patience=_PATIENCE,
        )
        self._name = answer["name"]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(ConnectionLost, Rejected):  # that's fine: it ends by itself
            await self._connection.api(f"CONSUMER.DELETE.{STREAM}.{self._name}")

    async def page(self) -> list[Seen]:
        """Return the next messages, none at the end; raises `ConnectionLost` when one is missing between them."""
        await self._connection.client()
        subject = self._connection.api_now(f"CONSUMER.MSG.NEXT.{STREAM}.{self._name}")
        inbox = self._connection.new_inbox()
        taken: list[Seen] = []
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def take(message: Arrived) -> None:
            self._take(message, taken, ended)

        subscription = await self._connection.tap(inbox, take)
        try:
            await self._connection.publish(
                subject, json.dumps({"batch": _PAGE, "no_wait": True}).encode(), reply=inbox
            )
            status = await self._connection.guard(_result(ended), _PATIENCE, subject)
        finally:
            with suppress(nats.errors.Error):  # gone with its client
                await subscription.unsubscribe()
        if status:
            raise ConnectionLost(f"the stream could not be looked through: {status}")
        return taken

    def _take(self, message: Arrived, taken: list[Seen], ended: "asyncio.Future[str]") -> None:
        if ended.done():
            return
        delivery = parse(message.reply)
        if delivery is None:
            headers = message.headers or {}
            status = headers.get("Status", "")
            is_end = status in {"404", "408"}
            ended.set_result("" if is_end else f"{status} {headers.get('Description', '')}")
            return
        self._number += 1
        if delivery.number != self._number:
            ended.set_result("a message was lost on its way")
            return
        size = _RECORD + _HEADERS + len(message.subject.encode("utf-8", "surrogateescape"))
        size += message.own_head + message.size
        origin = _origin(message.headers or {}) if self._origins else None
        taken.append(Seen(delivery.sequence, message.subject, size, delivery.stored_at, origin))
        if len(taken) == _PAGE or not delivery.pending:
            ended.set_result("")


def _origin(headers: dict[str, str]) -> Origin | None:
    try:
        return decode_origin(headers)
    except MalformedMessage:
        return None  # nobody's: it names no file


async def _result(ended: "asyncio.Future[str]") -> str:
    return await ended
