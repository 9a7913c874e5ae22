"""Sends a message no faster than the connection takes it, and waits for its acknowledgement."""

import asyncio
from collections.abc import Mapping
from typing import Any

from nats.aio.client import Client

from broker.client.connection import Connection, ConnectionLost, Message, Rejected

__all__ = ["Answers", "patience_for", "send"]

_LEAST_PATIENCE = 30.0  # seconds
_SLOWEST = 20_000  # bytes a second, of a line that still takes a round


def patience_for(size: int) -> float:
    """Return the seconds in which so many bytes get through, however slow the line is; a dead one is noticed by pings."""
    return _LEAST_PATIENCE + size / _SLOWEST


async def send(
    connection: Connection, subject: str, payload: bytes, reply: str, headers: Mapping[str, str]
) -> None:
    """Return once all but what the sockets hold is on its way.

    Raises `ConnectionLost` when the line did not take it in `patience_for` its size, `Denied`.
    """
    # waits for ever when nobody reads at the line's other end, so it is guarded
    sending = connection.publish(subject, payload, reply, dict(headers))
    await connection.guard(sending, patience_for(len(payload)), subject)


_SOON = 0.3  # seconds in which answers mostly come
_LONGEST = 600  # seconds; who waits for it gives up before


class Answers:
    """Hears one answer at a time; an answer to anything but the newest question is ignored."""

    def __init__(self, connection: Connection) -> None:
        """Remember the connection; nothing is sent before the first question."""
        self._connection = connection
        self._client: Client | None = None
        self._inbox = ""
        self._number = 0
        self._reply = ""
        self._answer: asyncio.Future[bytes] | None = None

    async def expect(self) -> str:
        """Return the subject on which the next answer is awaited; waits for a live client."""
        while (client := await self._connection.client()) is not self._client:
            self._inbox = self._connection.new_inbox()
            await self._connection.subscribe(f"{self._inbox}.*", self._hear)
            self._client = client
        self._number += 1
        self._reply = f"{self._inbox}.{self._number}"
        self._answer = asyncio.get_running_loop().create_future()
        return self._reply

    async def wait(self, patience: float, subject: str, due: float | None = None) -> bytes:
        """Return the answer; raises `ConnectionLost`, `Rejected` where nobody listens, `Denied` on `subject`.

        It must come within `patience` seconds, and within `due` seconds from when the server has read the whole question,
        where that is given: what is sent on to a leader that died is never answered.
        """
        began = asyncio.get_running_loop().time()
        try:
            answer = await self._connection.guard(self._wait(due), patience, subject)
        except (ConnectionLost, Rejected) as error:
            self._connection.judge(asyncio.get_running_loop().time() - began, error)
            raise
        self._connection.judge(0.0, None)
        return answer

    async def _wait(self, due: float | None) -> bytes:
        answer = self._answer
        if answer is None or self._client is None:
            raise RuntimeError("wait() before expect()")
        if due is not None and not (await asyncio.wait({answer}, timeout=_SOON))[0]:
            await self._until_read(self._client, answer)
            await asyncio.wait({answer}, timeout=due)
            if not answer.done():
                raise ConnectionLost(f"no answer in {due:g} s")
        return await answer

    async def _until_read(self, client: Client, answer: "asyncio.Future[bytes]") -> None:
        """Return when the server has read all that it was sent, however slow the line is, or has answered."""
        read: asyncio.Future[None] = asyncio.ensure_future(client.flush(_LONGEST))
        either: set[asyncio.Future[Any]] = {answer, read}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            read.add_done_callback(_look)
            read.cancel()

    async def _hear(self, message: Message) -> None:
        answer = self._answer
        if message.subject != self._reply or answer is None or answer.done():
            return
        if (message.headers or {}).get("Status"):
            answer.set_exception(Rejected(503, 0, "nobody listens there"))
        else:
            answer.set_result(message.data)


def _look(read: "asyncio.Future[None]") -> None:
    """Look at how it ended, of which the line's own end tells as well."""
    if not read.cancelled():
        read.exception()
