"""Reads a range of a stream by sequence, as often as wanted: no consumer is used, none is touched.

Each request says where it begins, so a lost connection costs one of them and nothing else.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace

from broker.client.connection import Connection, Rejected
from receiver.consume import background
from receiver.source.direct import patiently, request_batch
from receiver.source.ranges import Range, kept
from receiver.source.stored import Stored
from receiver.source.survey import look

__all__ = ["read"]

_RUN_BYTES = 8 * 1024 * 1024
_RUN_MESSAGES = 2000
_FIRST_MESSAGES = 16  # before anything is known of how close they lie
_AGAIN = 0.1  # seconds
_NO_MESSAGE = 10037


def read(connection: Connection, item: Range, fail: bool) -> Iterator[list[Stored]]:
    """Yield the messages of a range in order, in runs of about 8 MiB; the next run is fetched meanwhile.

    `fail` says what to do when retention may have removed some of them since the range was planned: raise `Loss`.
    Raises `BrokerAway` when the broker stays away for longer than half a minute, `Rejected`.
    """
    source = _Source(connection, item.stream, fail)
    pending = background.submit(source.next_run(item, _FIRST_MESSAGES))
    try:
        while True:
            run = pending.result()
            is_last = run.rest.first >= run.rest.until
            if not is_last:
                pending = background.submit(source.next_run(run.rest, run.more))
            if run.messages:
                yield run.messages
            if is_last:
                return
    finally:
        pending.cancel()


@dataclass(frozen=True, slots=True)
class _Run:
    """Messages of a range, what remains of it, and about how many more there are in that."""

    messages: list[Stored]
    rest: Range
    more: int = 0


@dataclass(frozen=True, slots=True)
class _Source:
    connection: Connection
    stream: str
    fail: bool

    async def next_run(self, item: Range, most: int) -> _Run:
        """Return the next messages of `item`, about `most`: what a request brings of behind the range is for nothing."""
        while item.first < item.until:
            run = await patiently(self.connection, lambda: self._request(item, most))
            await self._refuse_loss(item)
            if run:
                return _cut(run, item)
            if await patiently(self.connection, lambda: self._is_read(item)):
                break
            await asyncio.sleep(_AGAIN)  # a replica that is behind its leader answered
        return _Run([], replace(item, first=item.until))

    async def _request(self, item: Range, most: int) -> list[Stored]:
        request = {
            "seq": item.first,
            "next_by_subj": item.subject,
            "batch": min(most, item.until - item.first),
            "max_bytes": _RUN_BYTES,
        }
        return await request_batch(self.connection, self.stream, request)

    async def _is_read(self, item: Range) -> bool:
        # the leader has the last word on whether a range has nothing more
        request = {"seq": item.first, "next_by_subj": item.subject}
        try:
            answer = await self.connection.api(f"STREAM.MSG.GET.{self.stream}", request)
        except Rejected as error:
            if error.error == _NO_MESSAGE:
                return True
            raise
        return bool(answer["message"]["seq"] >= item.until)

    async def _refuse_loss(self, item: Range) -> None:
        if self.fail:
            state = await patiently(self.connection, lambda: look(self.connection, self.stream))
            kept(item.first, item.until, state, fail=True)


def _cut(run: list[Stored], item: Range) -> _Run:
    if run[-1].sequence >= item.until:
        inside = [message for message in run if message.sequence < item.until]
        return _Run(inside, replace(item, first=item.until))
    rest = replace(item, first=run[-1].sequence + 1)
    expected = len(run) * (rest.until - rest.first) // (rest.first - item.first)
    return _Run(run, rest, min(_RUN_MESSAGES, expected + expected // 10 + _FIRST_MESSAGES))
