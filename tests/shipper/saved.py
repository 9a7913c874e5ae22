"""The snapshot of a host's positions in the broker, as an administrator reads, spoils and deletes it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.client.bucket import read, write
from broker.client.connection import Connection
from broker.wire.positions import Positions
from broker.wire.streams import POSITIONS_BUCKET, positions_key

Answer = TypeVar("Answer")


async def put(connection: Connection, host: str, value: bytes | None) -> None:
    """Have the broker say this of a host from now on, None: nothing."""
    key = positions_key(host)
    entry = await read(connection, POSITIONS_BUCKET, key)
    if value is not None:
        await write(connection, POSITIONS_BUCKET, key, value, entry.revision if entry else 0)
    elif entry:
        deletion = {"KV-Operation": "DEL"}
        await connection.ask(f"$KV.{POSITIONS_BUCKET}.{key}", b"", deletion)


def on(url: str, work: Callable[[Connection], Awaitable[Answer]]) -> Answer:
    """Do something at the broker at an address, over a connection of its own."""

    async def run() -> Answer:
        connection = Connection([url], "test")
        try:
            return await work(connection)
        finally:
            await connection.close()

    return asyncio.run(run())


class Saved:
    """What the broker at an address has saved of a host; each call blocks, on a connection of its own."""

    def __init__(self, url: str, host: str = "web01") -> None:
        self._url = url
        self._host = host

    def value(self) -> bytes | None:
        """Return the snapshot as it is; None where there is none."""

        async def ask(connection: Connection) -> bytes | None:
            entry = await read(connection, POSITIONS_BUCKET, positions_key(self._host))
            return entry.value if entry else None

        return on(self._url, ask)

    def positions(self) -> Positions:
        """Return the positions of the snapshot; none where there is no snapshot."""
        value = self.value()
        return Positions() if value is None else Positions.decode(value)

    def put(self, value: bytes | None) -> None:
        """Have the broker say this from now on, None: nothing."""
        on(self._url, lambda connection: put(connection, self._host, value))
