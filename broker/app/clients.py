"""Who is being answered on a listening socket: bounded in number and time, whatever they do. Knows nothing of what is said."""

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["FRESH", "Clients"]

FRESH = 0.25
"""Seconds that what was put together for one client may be handed to the next."""


class Clients:
    """At most `most` clients at a time, each with `patience` seconds in all; one answer a connection."""

    def __init__(self, most: int, patience: float) -> None:
        """Begin with none."""
        self._most = most
        self._patience = patience
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(
        self, writer: asyncio.StreamWriter, answer: Callable[[], Awaitable[bytes]]
    ) -> None:
        """Send one client its answer and close; whoever is too many, too slow or gone is let go."""
        if len(self._writers) >= self._most:
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            async with asyncio.timeout(self._patience):
                writer.write(await answer())
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):
            writer.transport.abort()
        finally:
            self._writers.discard(writer)

    def abort(self) -> None:
        """Let go of all who have not heard all yet."""
        for writer in self._writers:
            writer.transport.abort()
