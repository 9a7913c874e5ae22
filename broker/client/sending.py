"""A client that hands large messages on as they are: copied once on their way to the socket, and never piled up.

nats-py 2.16 copies a message twice to make a command of it, a third time with all others that wait, and lets as many of
them wait as there are. A round of some MiB would cost its size three times in memory and a fifth of the shipper's
processor time.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from nats.aio.client import Client

__all__ = ["DIRECT_BYTES", "SendingClient"]

DIRECT_BYTES = 16 * 1024
"""From this size on a payload goes straight to the socket; what is smaller is better off gathered by nats-py."""


class SendingClient(Client):
    """Publishes and pings in the order of the calls, and waits with large messages while the socket takes no more."""

    async def _send_publish(
        self,
        subject: str,
        reply: str,
        payload: bytes,
        payload_size: int,
        headers: dict[str, Any] | None,
    ) -> None:
        transport = self._transport
        if payload_size < DIRECT_BYTES or headers is None or transport is None:
            await super()._send_publish(subject, reply, payload, payload_size, headers)
            return
        block = _header_block(headers)
        size = len(block) + payload_size
        command = f"HPUB {subject} {reply} {len(block)} {size}\r\n".encode()
        # nothing is awaited before all of it is written: another task's message may not come in between
        waiting, self._pending, self._pending_data_size = self._pending, [], 0
        transport.writelines([*waiting, command, block, payload, b"\r\n"])
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += payload_size
        await transport.drain()  # type: ignore[no-untyped-call]

    async def _send_ping(self, future: "asyncio.Future[None] | None" = None) -> None:
        # nats-py writes it ahead of what waits: whoever flushes would be told of what is still to be sent
        if self._transport is not None:
            waiting, self._pending, self._pending_data_size = self._pending, [], 0
            self._transport.writelines(waiting)
        await super()._send_ping(future)


def _header_block(headers: Mapping[str, str]) -> bytes:
    """Return the headers as they go on the wire (ADR-4); raises ValueError for what would break out of its line."""
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    if any(line.count("\n") != 1 or line.count("\r") != 1 for line in lines):
        raise ValueError(f"a line break in a header: {headers!r}")
    return "".join(["NATS/1.0\r\n", *lines, "\r\n"]).encode()
