"""Standard output as a place for many bytes: written aside, so that a reader who takes its time holds up no connection."""

import asyncio
import os
import select

__all__ = ["Sink"]

_LOOK_EVERY = 1.0  # seconds


class Sink:
    """A descriptor that is written to in order; raises BrokenPipeError when its reader has gone."""

    def __init__(self, descriptor: int) -> None:
        """Write to `descriptor`, which stays open."""
        self._descriptor = descriptor

    async def write(self, data: bytes) -> None:
        """Write all of it, however long the reader takes."""
        if data:
            await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # somebody who shares it made it so
                select.select([], [self._descriptor], [])

    async def until_nobody_reads(self) -> None:
        """Raise BrokenPipeError when the reader has gone, also while there is nothing to write."""
        poll = select.poll()
        poll.register(self._descriptor, 0)  # an error is told in any case
        while True:
            if any(event & select.POLLERR for _, event in poll.poll(0)):
                raise BrokenPipeError
            await asyncio.sleep(_LOOK_EVERY)
