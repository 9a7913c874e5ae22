"""Sends a message no faster than the connection takes it, and waits for its acknowledgement."""

import asyncio
from collections.abc import Mapping

from nats.aio.client import Client

from broker.app.faults import fault
from broker.client.connection import Connection, ConnectionLost, Message, Rejected
from broker.wire.streams import largest_in

__all__ = ["Acks", "largest_payload", "patience_for", "send"]

_LEAST_PATIENCE = 30.0  # seconds
_SLOWEST = 20_000  # bytes a second, of a line that still takes a round
_LEAST_DUE = 1.5  # seconds for an answer by a server of several, once it has read a round
_MOST_DUE = 30.0  # seconds; it grows with every answer that is late


async def largest_payload(connection: Connection) -> int:
    """Return how many bytes the broker takes at a time, beside our headers; waits for a live client."""
    return largest_in((await connection.client()).max_payload)


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


class Acks:
    """Sends one message at a time and hears its answer; an answer to anything but the newest message is ignored."""

    def __init__(self, connection: Connection, due: float = _LEAST_DUE) -> None:
        """Remember the connection; `due` is how soon one of several servers must answer what it has read, in seconds."""
        self._connection = connection
        self._client: Client | None = None
        self._inbox = ""
        self._number = 0
        self._reply = ""
        self._answer: asyncio.Future[bytes] | None = None
        self._least_due = self._due = due

    async def ask(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> bytes:
        """Send a message and return the answer; raises `ConnectionLost`, `Rejected` where nobody listens, `Denied`.

        What is sent on to a leader that died is never answered: of several servers another one is asked then.
        """
        client = await self._expect()
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answer = answer
        fault("sending")
        await send(self._connection, subject, payload, self._reply, headers)
        fault("sent")
        patience = patience_for(len(payload))
        began = asyncio.get_running_loop().time()
        try:
            await self._connection.guard(self._wait(client, answer, patience), patience, subject)
        except (ConnectionLost, Rejected) as error:
            self._connection.judge(asyncio.get_running_loop().time() - began, error)
            raise
        self._connection.judge(0.0, None)
        self._due = max(self._least_due, 0.9 * self._due)
        return answer.result()

    async def _expect(self) -> Client:
        """Return the live client whose next answer is awaited."""
        while (client := await self._connection.client()) is not self._client:
            self._inbox = self._connection.new_inbox()
            await self._connection.subscribe(f"{self._inbox}.*", self._hear)
            self._client = client
        self._number += 1
        self._reply = f"{self._inbox}.{self._number}"
        return client

    async def _wait(self, client: Client, answer: "asyncio.Future[bytes]", patience: float) -> None:
        if self._connection.has_choice:
            await client.flush(
                int(patience)
            )  # the server has read it all, however slow the line is
            await asyncio.wait({answer}, timeout=self._due)
            if not answer.done():
                late, self._due = self._due, min(2 * self._due, _MOST_DUE)
                raise ConnectionLost(f"no answer in {late:g} s")
        await answer

    async def _hear(self, message: Message) -> None:
        answer = self._answer
        if message.subject != self._reply or answer is None or answer.done():
            return
        if (message.headers or {}).get("Status"):
            answer.set_exception(Rejected(503, 0, "nobody listens there"))
        else:
            answer.set_result(message.data)
