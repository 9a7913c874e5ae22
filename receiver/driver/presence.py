"""Whether a receiver is running: each one answers at an address that its offsets in KV name."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection, Message
from nats_logship.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY

_PREFIX = "logship.receiver."
_INBOXES = ("_INBOX", "_R_.")  # the second is of clients of another account
_CHECK_EVERY = 2.0  # seconds
_PATIENCE = 2.0  # seconds for an answer

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ReceiverPresence:
    """The address at which this receiver answers, empty until it has received its own question.

    A receiver that may not subscribe has no address, and so is never taken for dead. `report`
    returns the answer to a question.
    """

    connection: Connection
    report: Callable[[bytes], bytes]
    address: str = ""
    _name: str = ""
    _client: object = None

    async def start(self) -> None:
        """Answer from now on, and set `address`; logs if the rights do not suffice."""
        while not self.address:
            try:
                await self._subscribe()
                await self.connection.request(f"{_PREFIX}{self._name}", patience=_PATIENCE)
                self.address = self._name
            except ConnectionLost:
                continue  # `_subscribe` waits for a new connection
            except Rejected:
                if await self.connection.client() is self._client:  # else the connection was lost
                    logger.warning(
                        "no --standby can take over from this receiver: it may not subscribe to "
                        "%s%s",
                        _PREFIX,
                        self._name,
                    )
                    return

    async def keep_answering(self) -> None:
        """Answer through each new connection, too; never returns."""
        while True:
            await asyncio.sleep(_CHECK_EVERY)
            if await self.connection.client() is not self._client:
                with suppress(ConnectionLost):
                    await self._subscribe()

    async def _subscribe(self) -> None:
        client = await self.connection.client()
        self._name = self._name or self.connection.new_token()
        await self.connection.subscribe(f"{_PREFIX}{self._name}", self._answer)
        self._client = client

    async def _answer(self, message: Message) -> None:
        # a client could have us answer to a subject that only we may publish to
        if message.reply.startswith(_INBOXES):
            with suppress(ConnectionLost):  # that's fine: the client asks again
                await self.connection.publish(message.reply, self.report(message.data))


async def request_report(connection: Connection, name: str, question: bytes = b"") -> bytes | None:
    """Return what the receiver at an address answers; None if nobody answers."""
    with suppress(Rejected, ConnectionLost):
        subject = f"{_PREFIX}{name}"
        return bytes((await connection.request(subject, question, patience=_PATIENCE)).data)
    return None


async def is_gone(connection: Connection, name: str, question: bytes = b"") -> bool:
    """Whether no receiver answers at an address, although the broker does."""
    if await request_report(connection, name, question) is None:
        with suppress(ConnectionLost, Rejected, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await bucket.read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
                return True
    return False
