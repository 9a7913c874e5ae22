"""Whether a line still moves: what the kernel has counted of it, and a client that asks for signs of life by that.

nats-py gives a line up when a PONG does not come between two PINGs, also when it only stands behind megabytes that a slow
line is bringing, or the PING behind those that it takes. What is sent again from its beginning then never arrives.
"""

import asyncio
import fcntl
import socket
import struct
import termios
from typing import NamedTuple

import nats.errors
from nats.aio.client import Client

from broker.client.line import Line

__all__ = ["PingingClient", "Pulse", "moves"]

_COUNTS = struct.Struct("120x QQ")  # linux/tcp.h: tcpi_bytes_acked, tcpi_bytes_received
_WAITING = struct.Struct("i")


class Pulse(NamedTuple):
    """What has come of a connection in bytes: received, taken by the other end's kernel, and `waiting` to be taken."""

    received: int
    taken: int
    waiting: int

    @classmethod
    def of(cls, line: socket.socket) -> "Pulse":
        """Ask the kernel; raises OSError for a socket that is closed."""
        taken, received = _COUNTS.unpack(
            line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTS.size)
        )
        (waiting,) = _WAITING.unpack(
            fcntl.ioctl(line.fileno(), termios.TIOCOUTQ, bytes(_WAITING.size))
        )
        return cls(received, taken, waiting)


def moves(before: Pulse, now: Pulse) -> bool:
    """Whether no answer to a PING may be expected yet: bytes come in, or it may stand behind others that go out.

    A kernel takes what its program, which stands still, will never read: where nothing waits any more, the PING is there.
    """
    return now.received > before.received or (now.waiting > 0 and now.taken > before.taken)


class PingingClient(Client):
    """Ends a line on which two PINGs in a row were not answered and nothing moved between them."""

    async def _ping_interval(self) -> None:
        before = self._pulse()
        while True:
            await asyncio.sleep(self.options["ping_interval"])
            now = self._pulse()
            if before and now and moves(before, now):
                self._pings_outstanding = 0
            before = now
            if self.is_connected and not await self._ping():
                return

    async def _ping(self) -> bool:
        """Send a PING; False when the line was given up, or has just ended."""
        self._pings_outstanding += 1
        if self._pings_outstanding > self.options["max_outstanding_pings"]:
            await self._process_op_err(nats.errors.StaleConnectionError())
            return False
        try:
            await self._send_ping()
        except (RuntimeError, AttributeError):
            return False
        return True

    def _pulse(self) -> Pulse | None:
        line = self._transport.socket if isinstance(self._transport, Line) else None
        try:
            return Pulse.of(line) if line is not None else None
        except (OSError, ValueError):  # closed just now
            return None
