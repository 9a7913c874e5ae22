"""Archives on their way between a server and a file, some chunks at a time: memory stays flat whatever their size.

The archive is nats-server's own and opaque here. A chunk is acknowledged once it is written, or sent once the one so many
before it is acknowledged, so the slower end sets the pace; a server gives up an end that is silent for 5 s.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import nats.errors
from aiofiles.threadpool.binary import AsyncBufferedReader

from broker.client.answer import answer_of
from broker.client.connection import Connection, ConnectionLost, RawMessage, Rejected

__all__ = ["SnapshotFailed", "described", "read_in", "take"]

_STREAM_NOT_FOUND = 10059

_CHUNK, _WINDOW = 128 * 1024, 2 * 1024 * 1024  # bytes: of a chunk, and unacknowledged at a time
_PATIENCE = 30.0  # seconds without a word from a server that is alive
_ACTIVATION = 600.0  # seconds that it may take to make a stream of what it has read in


async def described(connection: Connection, stream: str) -> Mapping[str, Any] | None:
    """Return the description of a stream, None where there is none; raises `Rejected`, `ConnectionLost`."""
    try:
        return await connection.api(f"STREAM.INFO.{stream}")
    except Rejected as error:
        if error.error != _STREAM_NOT_FOUND:
            raise
        return None


class SnapshotFailed(Exception):
    """The server broke off an archive; the message is its reason."""


async def take(
    connection: Connection, stream: str, write: Callable[[Sequence[bytes]], object]
) -> Mapping[str, Any]:
    """Have a stream's archive written, chunk by chunk in a thread, and return the answer with its `config` and `state`.

    What is stored while this goes on is not in it. Raises `SnapshotFailed`, `Rejected`, `ConnectionLost` and what `write`
    raises; what was written by then is of no use.
    """
    await connection.once()
    arrived: asyncio.Queue[RawMessage] = asyncio.Queue()
    inbox = connection.new_inbox()
    subscription = await connection.tap(inbox, arrived.put_nowait)
    body = {
        "deliver_subject": inbox,
        "no_consumers": False,
        "chunk_size": _CHUNK,
        "window_size": _WINDOW,
    }
    try:
        answer = await connection.api(f"STREAM.SNAPSHOT.{stream}", body, patience=_PATIENCE)
        while not await _write_what_came(connection, arrived, write):
            pass
    finally:
        with suppress(nats.errors.Error):  # gone with its client
            await subscription.unsubscribe()
    return answer


async def _write_what_came(
    connection: Connection,
    arrived: "asyncio.Queue[RawMessage]",
    write: Callable[[Sequence[bytes]], object],
) -> bool:
    """Write and acknowledge the chunks that are there; return whether that was the end."""
    chunks = [await connection.guard(arrived.get(), _PATIENCE)]
    while not arrived.empty():
        chunks.append(arrived.get_nowait())
    # the last message carries nothing, or a status and nothing
    last = chunks.pop() if not chunks[-1].data else None
    if last is not None:
        _check(last)
    if chunks:
        await asyncio.to_thread(write, [chunk.data for chunk in chunks])
    for chunk in chunks:
        if chunk.reply:
            await connection.publish(chunk.reply)
    return last is not None


def _check(last: RawMessage) -> None:
    headers = last.headers or {}
    status = headers.get("Status", "")
    if status not in {"", "204"}:
        raise SnapshotFailed(headers.get("Description") or f"status {status}")


async def read_in(
    connection: Connection,
    config: Mapping[str, Any],
    state: Mapping[str, Any],
    archive: AsyncBufferedReader,
    advance: Callable[[int], None],
) -> Mapping[str, Any]:
    """Make a stream of an archive under a configuration, and return its description; `advance` is told of bytes taken in.

    Raises `Rejected` and `ConnectionLost`; the server then has a part of the stream, and keeps that.
    """
    client = await connection.once()
    begun = await connection.api(
        f"STREAM.RESTORE.{config['name']}", {"config": config, "state": state}, patience=_PATIENCE
    )
    chunk = min(_CHUNK, client.max_payload)
    async with _Sending(connection, begun["deliver_subject"], _WINDOW // chunk, advance) as sending:
        while data := await archive.read(chunk):
            await sending.send(data)
        return await sending.finish()


class _Sending:
    """Chunks under way to a server, so many at a time."""

    def __init__(
        self, connection: Connection, subject: str, most: int, advance: Callable[[int], None]
    ) -> None:
        self._connection = connection
        self._subject = subject
        self._most = max(1, most)
        self._advance = advance
        self._sizes: list[int] = []
        self._answers: asyncio.Queue[RawMessage] = asyncio.Queue()

    async def __aenter__(self) -> "_Sending":
        self._inbox = self._connection.new_inbox()
        self._subscription = await self._connection.tap(self._inbox, self._answers.put_nowait)
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(nats.errors.Error):  # gone with its client
            await self._subscription.unsubscribe()

    async def send(self, data: bytes) -> None:
        while len(self._sizes) >= self._most:
            await self._hear()
        self._sizes.append(len(data))
        await self._connection.publish(self._subject, data, reply=self._inbox)

    async def finish(self) -> Mapping[str, Any]:
        while self._sizes:
            await self._hear()
        await self._connection.publish(self._subject, b"", reply=self._inbox)
        answer = await self._connection.guard(self._answers.get(), _ACTIVATION)
        return answer_of(answer.data)

    async def _hear(self) -> None:
        answer = await self._connection.guard(self._answers.get(), _PATIENCE, self._subject)
        if answer.data:
            answer_of(answer.data)  # raises what the server says
            raise ConnectionLost("the server took the archive for finished before its end")
        if (answer.headers or {}).get("Status") == "503":
            raise ConnectionLost("the server has given the restore up")
        self._advance(self._sizes.pop(0))
