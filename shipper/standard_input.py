"""Reads lines from standard input, as far as there is room: a writer that is faster than the broker is made to wait.

Reads as soon as there is something, never when there is not: no thread is left waiting for a writer at the end. What
was read cannot be read again, so whoever gathers must ship it.
"""

import asyncio
import math
import os
from collections.abc import Callable, Container

from broker.block import Block, Origin, Span
from broker.exits import OperatorError
from shipper.cursor import Cursor
from shipper.files.blocks import cut
from shipper.files.limits import Limits
from shipper.filestate import FileState, Stage
from shipper.notice import Notice

__all__ = ["PATH", "StandardInput"]

PATH = "-"
"""What stands for standard input among the files, and in headers."""

_ROOM = 1024 * 1024
"""Bytes that are read ahead of the broker, or one line of the greatest length if that is more."""


class StandardInput:
    """The lines of a descriptor until it ends or `stopping` is set; the last one then gets its newline.

    `clock` gives nanoseconds since the epoch, `file` is the id that the spans get. The descriptor stays open.
    """

    is_waiting = False
    is_repeatable = False
    is_unsettled = False
    is_oriented = False
    look_due = False
    open_files = 1
    patience = math.inf

    def __init__(
        self,
        file: str,
        limits: Limits,
        clock: Callable[[], int],
        stopping: asyncio.Event,
        descriptor: int = 0,
    ) -> None:
        """Read nothing before the first look."""
        self.agent = ""
        self._file = file
        self._limits = limits
        self._clock = clock
        self._stopping = stopping
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._room = max(_ROOM, limits.max_line) + limits.block_size
        self._offset = 0
        self._pieces = 0
        self._seen = 0
        self._since: int | None = None
        self._is_over = False
        self._is_watched = False
        self._is_pollable = True
        self._error = ""
        self.wake = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        """Whether all that was read has been gathered, and nothing more will be."""
        return self._is_closing and not self._buffer

    @property
    def _is_closing(self) -> bool:
        return self._is_over or self._stopping.is_set()

    async def look(self) -> list[Notice]:
        """Begin or go on reading; there is nothing to be found."""
        self._watch()
        return []

    async def gather(self, budget: int) -> list[Block]:
        """Return the lines that have come, about `budget` bytes of them; raises `OperatorError` when reading failed."""
        while not (blocks := self._take(budget) or self._take(len(self._buffer))):
            if self._is_pollable or self._is_closing:
                break
            self._add(await asyncio.to_thread(self._read))
        if self._error and not blocks:
            raise OperatorError(f"cannot read standard input: {self._error}")
        self._watch()
        return blocks

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - running out of it is no error here
        """Return when something has come since the last call, or after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self.wake.wait()
        except TimeoutError:
            return
        self.wake.clear()

    def states(self) -> list[FileState]:
        """Return how much has come and how much of it was gathered."""
        return [
            FileState(
                path=PATH,
                file=self._file,
                size=self._offset + len(self._buffer),
                offset=self._offset,
                inode=0,
                held=len(self._buffer),
                seen=self._seen,
                since=self._since,
                stage=Stage.FOLLOWING,
                note="has ended" if self._is_over else "",
            )
        ]

    def troubles(self) -> list[Notice]:
        """Return nothing: trouble with reading is an end."""
        return []

    def passed_over(self) -> list[str]:
        """Return nothing: there is no file to pass over."""
        return []

    def starts(self, but: Container[str]) -> list[Cursor]:
        """Return nothing: no position can bring lines back that were read from a pipe."""
        return []

    async def close(self) -> None:
        """Read no more."""
        self._unwatch()

    def _take(self, budget: int) -> list[Block]:
        limits, length = self._limits, min(budget, len(self._buffer))
        runs = cut(self._buffer, 0, length, limits.block_size, limits.max_line)
        taken = sum(map(len, runs))
        now = self._clock()
        blocks = [self._block(run, run, now) for run in runs]
        if self._is_closing and length == len(self._buffer) and taken < length:
            rest = bytes(self._buffer[taken:])
            blocks.append(self._block(rest, rest + b"\n", now))
            taken = length
        del self._buffer[:taken]
        self._since = self._since if self._buffer else None
        return blocks

    def _block(self, run: bytes, payload: bytes, now: int) -> Block:
        span = Span(self._file, self._offset, self._offset + len(run))
        self._offset = span.end
        continues = self._pieces > 0
        self._pieces = 0 if payload.endswith(b"\n") else self._pieces + 1
        origin = Origin(self.agent, PATH, span, None, payload.count(b"\n"), now)
        return Block(origin, payload, continues)

    def _watch(self) -> None:
        if self._is_watched or not self._is_pollable or self._is_closing or not self._has_room:
            return
        try:
            asyncio.get_running_loop().add_reader(self._descriptor, self._ready)
            self._is_watched = True
        except PermissionError:
            # a file, or /dev/null: always ready, and read when there is room
            self._is_pollable = False
            self.wake.set()

    def _unwatch(self) -> None:
        if self._is_watched:
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self._is_watched = False

    @property
    def _has_room(self) -> bool:
        return len(self._buffer) < self._room

    def _ready(self) -> None:
        if not self._stopping.is_set():
            self._add(self._read())
        if self._is_closing or not self._has_room:
            self._unwatch()

    def _read(self) -> bytes | None:
        try:
            return os.read(self._descriptor, self._room - len(self._buffer))
        except BlockingIOError:
            return None  # whoever shares the pipe was quicker
        except OSError as error:
            self._error = error.strerror or str(error)
            return b""

    def _add(self, data: bytes | None) -> None:
        if data is None:
            return
        self._seen = self._clock()
        self._since = self._since or self._seen
        self._buffer += data
        self._is_over = not data
        self.wake.set()
