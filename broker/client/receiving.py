"""A client that takes in messages at their own price: a bare slice of what was read, and no task, queue or header parsing.

nats-py 2.16 spends 15 microseconds on a message, and copies its bytes five times before anybody sees them. What is
tapped here costs one and a half, and two copies; everything else goes nats-py's own way.
"""

from collections.abc import Callable
from typing import Any

from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from broker.wire.delivery import RawMessage

__all__ = ["ReceivingClient", "Tap"]

_END = b"\r\n"


Tap = Callable[[RawMessage], None]
"""Told of every message at once, in order; it must not raise, and not wait."""


class ReceivingClient(Client):
    """Hands the messages of tapped subscriptions over as they are read off the socket, in their order."""

    def __init__(self) -> None:
        """Tap nothing yet."""
        super().__init__()
        self.taps: dict[bytes, Tap] = {}
        self._ps = _Parser(self)

    async def tap(self, subject: str, tap: Tap) -> Subscription:
        """Subscribe; `tap` is told until the end of the subscription. Nothing bounds what is under way but its sender."""
        subscription = await self.subscribe(subject)
        self.taps[b"%d" % subscription._id] = tap
        return subscription

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self.taps.pop(b"%d" % sid, None)
        super()._remove_sub(sid, max_msgs)


class _Parser(Parser):
    """Cuts what was read into messages; hands every other operation to nats-py's parser, a whole line at a time."""

    def __init__(self, client: ReceivingClient) -> None:
        super().__init__(client)
        self._client: Any = client

    def reset(self) -> None:
        super().reset()
        self._parts: list[
            bytes
        ] = []  # of an operation that is not whole yet, from its first byte on
        self._missing = 0  # bytes of its payload; 0 where not even its line is whole

    async def parse(self, data: bytes = b"") -> None:
        self._client._pings_outstanding = 0  # a server that sends is alive, however far its PONG is
        try:
            await self._parse(data)
        except (ValueError, LookupError, ArithmeticError, TypeError, AttributeError) as error:
            # of a defect nats-py would read no more and tell nobody; of this it ends the connection
            raise ProtocolError(f"nats: cannot be read: {error}") from error

    async def _parse(self, data: bytes) -> None:
        at = self._missing
        if at > len(data):
            self._parts.append(data)
            self._missing -= len(data)
            return
        if at:
            whole = b"".join((*self._parts, data[:at]))
            self._parts, self._missing = [], 0
            await self._operations(whole, 0)
        elif self._parts:
            data = b"".join((*self._parts, data))
            self._parts = []
        at = await self._operations(data, at)
        if at < len(data):
            self._parts.append(data[at:])

    async def _operations(self, data: bytes, at: int) -> int:
        """Do every whole operation from `at` on and return where the first begins that is not whole."""
        find, taps, size = data.find, self._client.taps, len(data)
        while at < size and (end := find(_END, at)) >= 0:
            # subjects may hold every white space but these: blank, tab, CR, LF
            words = data[at:end].split(b" ")
            head, length = _sizes(words)
            if length < 0:
                await super().parse(data[at : end + 2])
                at = end + 2
                continue
            begin, until = end + 2, end + 2 + length
            if until + 2 > size:
                self._missing = until + 2 - size
                return at
            reply = words[3] if len(words) > (5 if head else 4) else b""
            tap = taps.get(words[2])
            if tap is not None:
                tap(
                    RawMessage(
                        words[1].decode("utf-8", "surrogateescape"),
                        reply.decode("utf-8", "surrogateescape"),
                        data[begin : begin + head],
                        data[begin + head : until],
                    )
                )
            else:
                await self._client._process_msg(
                    int(words[2]),
                    words[1],
                    reply,
                    data[begin + head : until],
                    data[begin : begin + head] or None,
                )
            at = until + 2
        return at


def _sizes(words: list[bytes]) -> tuple[int, int]:
    """Return the bytes of a message's headers and of the whole of it; a length of -1 for another operation.

    `MSG <subject> <sid> [reply] <size>` and `HMSG <subject> <sid> [reply] <header size> <size>`.
    """
    try:
        match words:
            case [b"MSG", _, _, *_, size]:
                return 0, int(size)
            case [b"HMSG", _, _, *_, head, size]:
                return int(head), int(size)
            case _:
                return 0, -1
    except ValueError:
        raise ProtocolError("nats: malformed message") from None
