"""The broker's answer to the round in flight, over one subscription for as long as a client lives."""

import asyncio

from nats.aio.client import Client

from broker.connecting.connection import Connection, Message, Rejected

__all__ = ["Answers"]


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

    async def wait(self, patience: float, subject: str) -> bytes:
        """Return the answer; raises `ConnectionLost`, `Rejected` where nobody listens, `Denied` on `subject`."""
        return await self._connection.guard(self._wait(), patience, subject)

    async def _wait(self) -> bytes:
        if self._answer is None:
            raise RuntimeError("wait() before expect()")
        return await self._answer

    async def _hear(self, message: Message) -> None:
        answer = self._answer
        if message.subject != self._reply or answer is None or answer.done():
            return
        if (message.headers or {}).get("Status"):
            answer.set_exception(Rejected(503, 0, "nobody listens there"))
        elif (
            message.data
        ):  # the start of a batch is answered with nothing, which only says that it began
            answer.set_result(message.data)
