"""A follower in a folder of its own, and the blocks that it shipped."""

import asyncio
import bz2
import gzip
import itertools
import lzma
import math
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import zstandard

from nats_logship.wire.positions import Cursor, Positions
from shipper.clock import Clock
from shipper.sources.block import Block
from shipper.sources.files.follower import Follower
from shipper.sources.files.paths import Compression, Selection
from shipper.sources.notices import Notice, NoticeKind
from shipper.timer import wait_for_event
from tests.shipper.shipped import origins

SECOND = 1_000_000_000


def packed(content: bytes, compression: Compression) -> bytes:
    """Return the content as the usual program would compress it, in one stream."""
    match compression:
        case Compression.GZIP:
            return gzip.compress(content, 1)
        case Compression.ZSTD:
            return zstandard.ZstdCompressor(1, write_checksum=True).compress(content)
        case Compression.XZ:
            return lzma.compress(content, preset=0)
        case Compression.BZIP2:
            return bz2.compress(content, 1)


def pack(original: Path, compression: Compression) -> Path:
    """Compress a file as gzip does: with its time of change; then delete the original."""
    written = original.stat().st_mtime_ns
    path = original.with_name(original.name + compression.value)
    path.write_bytes(packed(original.read_bytes(), compression))
    os.utime(path, ns=(written, written))
    original.unlink()
    return path


class Host:
    """Log files in `folder`, and an agent that follows them.

    The test may let time pass, `later`, or set the clock.
    """

    def __init__(
        self,
        folder: Path,
        *patterns: str,
        from_end: bool = False,
        ignore_older: int | None = None,
        **options: Any,
    ) -> None:
        self.folder = folder
        self.selection = self._select(patterns or ("app.log",), from_end, ignore_older)
        self.blocks: list[Block] = []
        self.notices: list[Notice] = []
        self.later = 0
        self._ahead = 0
        self.positions = Positions()
        self._options = options
        self._ids = (f"id{n}" for n in itertools.count())
        self.follower = self.start([])

    def _select(
        self, patterns: Sequence[str], from_end: bool = False, ignore_older: int | None = None
    ) -> Selection:
        paths = [str(self.folder / name) for name in patterns]
        return Selection.of(paths, from_end=from_end, ignore_older=ignore_older)

    def start(self, known: list[Cursor]) -> Follower:
        new_id = partial(next, self._ids)
        clock = Clock(self.clock, self.steady)
        return Follower(self.selection, known, new_id=new_id, clock=clock, **self._options)

    async def retarget(self, *patterns: str, from_end: bool = False) -> None:
        """Follow other patterns, as after SIGHUP."""
        self.selection = self._select(patterns, from_end)
        await self.follower.retarget(self.selection)

    def clock(self) -> int:
        """Return the wall clock, which the test may set."""
        return time.time_ns() + self.later + self._ahead

    def steady(self) -> int:
        return time.monotonic_ns() + self.later

    def set_clock(self, seconds: int) -> None:
        """Have the wall clock show so many seconds more than before, or less."""
        self._ahead += seconds * SECOND

    async def restart(self) -> None:
        """Restart the agent with the cursors of the blocks, as the stream has them."""
        await self.follower.close()
        self.follower = self.start(self.cursors())

    async def restart_with_saved_positions(self) -> None:
        """Restart the agent with its snapshot, which also has files that were only found."""
        await self.follower.close()
        self.positions = self.positions.advance(origins(self.blocks), len(self.blocks))
        self._note_ended()
        self.follower = self.start(list(self.positions.files.values()))

    def cursors(self) -> list[Cursor]:
        return list(Positions().advance(origins(self.blocks), 0).files.values())

    def write(self, name: str, data: bytes) -> None:
        with (self.folder / name).open("ab") as file:
            file.write(data)

    def move(self, name: str, to: str) -> None:
        (self.folder / name).rename(self.folder / to)

    def switch(self, link: str, target: str) -> None:
        """Make or change a symbolic link at once."""
        (self.folder / "new").symlink_to(target)
        (self.folder / "new").replace(self.folder / link)

    def backdate(self, name: str, nanoseconds: int) -> None:
        path = self.folder / name
        then = path.stat().st_mtime_ns - nanoseconds
        os.utime(path, ns=(then, then))

    def pack(self, name: str, compression: Compression = Compression.GZIP) -> Path:
        return pack(self.folder / name, compression)

    async def scan(self) -> list[Notice]:
        notices = await self.follower.scan()
        # as the shipping loop does
        waiting = () if self.follower.has_decided else self.positions.files.values()
        starts = self.follower.start_cursors(self.positions.started_files())
        self.positions = self.positions.with_starts([*waiting, *starts])
        self._note_ended()
        self.notices += notices
        return notices

    def _note_ended(self) -> None:
        alive = {state.file for state in self.follower.files()}
        ended = self.follower.ended_files
        self.positions = self.positions.with_ended(ended, alive - ended)

    async def gather(self, budget: int = 1 << 22) -> bytes:
        """Gather until nothing more comes; return what came, in order, of all files."""
        got: list[Block] = []
        while blocks := await self.follower.gather(budget):
            got += blocks
        self.blocks += got
        return b"".join(block.lines for block in got)

    async def ship(self) -> bytes:
        """Look and gather."""
        await self.scan()
        return await self.gather()

    async def ship_out(self) -> None:
        """Ship until the last lines of rotated files were waited for."""
        for _ in range(3):
            await self.ship()
            self.later += 6 * SECOND

    async def until_shipped(self, lines: bytes, longest: float = math.inf) -> None:
        """Wait for changes until these lines come last; scan only if a scan is due."""
        async with asyncio.timeout(40):
            while not self.shipped.endswith(lines):
                await self.step(longest)

    async def step(self, longest: float) -> None:
        """Take what there is, or wait for more, as the loop of the program does."""
        if self.follower.is_scan_due:
            await self.scan()
        if not await self.gather() and not self.follower.is_scan_due:
            await self.wait(min(longest, self.follower.poll_in))

    async def wait(self, seconds: float) -> None:
        """Wait for a change, as the loop of the program does."""
        self.follower.await_change()
        await wait_for_event(self.follower.wake, seconds)
        self.follower.wake.clear()

    @property
    def shipped(self) -> bytes:
        return b"".join(block.lines for block in self.blocks)

    def reported(self, kind: NoticeKind) -> list[Notice]:
        return [notice for notice in self.notices if notice.kind is kind]
