"""What the snapshots of the positions say of hosts: how many files each has, and the version of its shipper. Changes nothing."""

import asyncio
from contextlib import aclosing, suppress
from typing import NamedTuple

from broker.client.connection import Connection
from broker.inspect.reader import MessageReader, at_sequence
from broker.wire.positions import Positions, PositionsUnreadable
from broker.wire.streams import POSITIONS_BUCKET, positions_key

_STREAM = f"KV_{POSITIONS_BUCKET}"


class Saved(NamedTuple):
    """What a snapshot says of a host."""

    files: int | None = None
    version: str = ""


class SavedPositions:
    """The snapshots of all hosts, of which only those are read that were written since the last time."""

    def __init__(self) -> None:
        """Know of none before `read`."""
        self._by_key: dict[str, Saved] = {}
        self._last = 0  # sequence that was read

    def of(self, host: str) -> Saved:
        """Return what is known of a host."""
        return self._by_key.get(positions_key(host), Saved())

    async def read(self, connection: Connection) -> None:
        """Read what was written since; raises `Rejected`, `ConnectionLost`."""
        state = (await connection.api(f"STREAM.INFO.{_STREAM}"))["state"]
        if state["last_seq"] < self._last:  # the bucket was made anew
            self._last, self._by_key = 0, {}
        reader = MessageReader(connection, _STREAM, at_sequence(self._last + 1))
        async with aclosing(reader.read_all(state["last_seq"])) as messages:
            async for one in messages:
                with suppress(PositionsUnreadable):
                    saved = Positions.decode(one.payload)
                    self._by_key[one.name.rpartition(".")[2]] = Saved(
                        len(saved.files), saved.version
                    )
                await asyncio.sleep(0)  # a snapshot may be large
        self._last = state["last_seq"]
