"""Finds the files, reads whole lines from them, and remembers how far it has read (not how far is acknowledged).

    folders --scan--> roster --chains--> tailers --read, cut--> blocks
       watcher: wakes, marks files as changed and looks as due

Publishes nothing. A look decides what every file is; a gathering only reads, and what it finds doubtful it leaves to the next look.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from aiofiles.os import wrap

from broker.block import Block
from shipper.cursor import Cursor
from shipper.files.discovery import scan
from shipper.files.handles import Handles
from shipper.files.identity import HEAD_BYTES, TAIL_BYTES
from shipper.files.limits import Limits
from shipper.files.reading import Reading, Request, read
from shipper.files.sampling import Sample, sample
from shipper.files.selection import Selection
from shipper.files.sighting import FileKey
from shipper.files.tailer import Tailer
from shipper.filestate import FileState
from shipper.following.attention import Attention
from shipper.following.departure import departure
from shipper.following.roster import Roster
from shipper.following.troubles import Troubles
from shipper.notice import Notice, NoticeKind

__all__ = ["Follower"]

_MOST_PER_READ = 2 * 1024 * 1024
"""Bytes taken from one file at a time: enough to make the visit to a thread cheap, few enough to be fair."""

_PATIENCE = 1_000_000_000
"""Nanoseconds that a writer has for the rest of an over-long line before other files are read in between."""

_SECOND = 1_000_000_000

_read = wrap(read)


class Follower:
    """Follows all files of one host; the read cursors begin at `known`, and files never seen at their beginning.

    `clock` gives nanoseconds since the epoch, `block_size` and `max_line` are bytes, `grace` and `hold` are in seconds. `wake` is
    set on any change, `look_due` when a file came, went or was renamed or truncated, `is_unsettled` while one that was
    rotated or deleted waits for its end. One task at a time may look or gather; another waits.
    """

    is_repeatable = True
    has_ended = False

    def __init__(
        self,
        selection: Selection,
        known: Iterable[Cursor],
        *,
        agent: str,
        new_id: Callable[[], str],
        clock: Callable[[], int],
        block_size: int = 256 * 1024,
        max_line: int = 1024 * 1024,
        grace: float = 5.0,
        hold: float = 6 * 3600.0,
        open_files: int = 500,
        poll_every: float = 1.0,
        listen: bool = True,
    ) -> None:
        self._selection = selection
        self._agent = agent
        self._clock = clock
        self._limits = Limits(block_size, max_line, 0, open_files)
        self._limits = self._lasting(grace, hold)
        self._roster = Roster(selection, known, new_id)
        self._handles = Handles(open_files)
        self._troubles = Troubles()
        self._attention = Attention(self._handles, self._heard, poll_every, listen)
        self._turns: dict[str, None] = {}
        self._in_line: Tailer | None = None
        self._losses: list[Notice] = []
        self._is_unpacking = False
        self._buffer = bytearray(max(_MOST_PER_READ, max_line + 1) + TAIL_BYTES)
        self._lock = asyncio.Lock()
        self.wake = asyncio.Event()
        self.look_due = True
        self.is_unsettled = False

    async def look(self) -> list[Notice]:
        """Look at the folders now; return what changed since the last look."""
        async with self._lock:
            return await self._look(self._clock())

    async def gather(self, budget: int) -> list[Block]:
        """Return about `budget` bytes of lines that are readable now, and move the read cursors behind them.

        Takes turns over the chains, within a chain oldest first; nothing comes between the pieces of an over-long line,
        in this gathering and the next, unless its rest takes long to be written. Empty when there is nothing to read
        or, as `is_waiting` then says, when it is the turn of such a rest or a compressed file is unpacked up to its own.
        """
        async with self._lock:
            blocks: list[Block] = []
            self._is_unpacking = False
            self._stir(await self._attention.glance(self._roster.tailers))
            while budget > 0 and (turn := await self._turn(budget)):
                got = await self._read(turn)
                budget -= sum(len(block.payload) for block in got)
                blocks += got
                await self._handles.trim(self._roster.tailers)
                if self._is_unpacking and not got:
                    break  # so that it can be stopped
            return blocks

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - running out of it is no error here
        """Return when something changed since the last call, or after `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self.wake.wait()
        self.wake.clear()

    @property
    def is_waiting(self) -> bool:
        """Whether there is more to gather soon: behind a long way through a compressed file, or an over-long line.

        All files wait for the rest of such a line, which is still being written; a second at most.
        """
        return self._is_unpacking or self._is_in_line()

    def _is_in_line(self) -> bool:
        line = self._in_line
        if line is None or line.dirty or line.suspect:
            return False
        return self._clock() < line.seen + _PATIENCE

    @property
    def patience(self) -> float:
        """After how many seconds to gather again although nothing was heard; infinite while all is listened to."""
        return self._attention.patience

    def states(self) -> list[FileState]:
        """Return every followed file as it was last seen."""
        return [tailer.state() for tailer in self._roster.tailers.values()]

    def troubles(self) -> list[Notice]:
        """Return what kept files from being read at the last look."""
        return self._troubles.now()

    @property
    def open_files(self) -> int:
        """How many files are open now."""
        return len(self._handles)

    def passed_over(self) -> list[str]:
        """Return the paths of the files that are not followed because they were not written for long."""
        return [sighting.path for sighting in self._roster.passed_over()]

    def cursors(self) -> list[Cursor]:
        """Return the read cursor of every followed file, those at 0 as well, of which the stream knows nothing."""
        return [tailer.cursor for tailer in self._roster.tailers.values()]

    def starts(self, but: Container[str]) -> list[Cursor]:
        """Return where every followed file was begun whose id is not in `but` and in which something was seen.

        Whoever remembers it finds the file again although not a line of it was shipped.
        """
        tailers = (t for t in self._roster.tailers.values() if t.file not in but)
        # begun at its end, an empty file's first lines would be taken for old ones at the next start
        from_end = self._selection.from_end
        return [tailer.start for tailer in tailers if tailer.beginning or from_end]

    async def retarget(self, selection: Selection, grace: float, hold: float) -> None:
        """Follow another selection from the next look on, which is due then; `grace` and `hold` are in seconds.

        What it shows still is read on where it is. What it shows no longer is let go at once and not called lost: its
        cursor stays known, should it be named again.
        """
        async with self._lock:
            self._selection = selection
            self._limits = self._lasting(grace, hold)
            self._roster.retarget(selection)
            if self._in_line is not None and self._in_line.sighting.key not in self._roster.tailers:
                self._in_line = None
            await self._handles.trim(self._roster.tailers)
        self.look_due = True
        self.wake.set()

    async def close(self) -> None:
        """Stop watching and close all files."""
        await self._attention.close()
        async with self._lock:
            await self._handles.trim({})

    async def _look(self, now: int) -> list[Notice]:
        self.look_due = self.is_unsettled = False
        try:
            shown = await asyncio.to_thread(scan, self._selection, tuple(self._roster.memory.lives))
        except OSError as error:  # nothing was seen, so nothing is known to be gone
            self.look_due = True
            text = f"cannot be listed now: {error.strerror}"
            return self._troubles.changes(
                [Notice(NoticeKind.UNREADABLE, str(error.filename), text)]
            )
        asks, notices = self._roster.sight(shown.sightings, now, self._handles.__contains__)
        gone = await self._let_go(now)
        samples = await asyncio.to_thread(sample, asks) if asks else {}
        refused = [seen for seen in samples.values() if isinstance(seen, Notice)]
        readable = {key: seen for key, seen in samples.items() if isinstance(seen, Sample)}
        notices += self._troubles.changes((*shown.troubles, *refused))
        notices += self._roster.settle(readable, now) + gone + self._losses
        if all(ask.sighting.key in samples for ask in asks):
            self._roster.looked(now)
        else:
            self.look_due = True  # a file was moved on between sighting and glimpse
        self._losses = []
        await self._handles.open_early(self._roster.tailers.values())
        await self._handles.trim(self._roster.tailers)
        self._turns.update(dict.fromkeys(self._roster.chains))
        notices += await self._attention.follow(shown.folders, self._roster.tailers, now)
        in_line = (t for t in self._roster.tailers.values() if t.is_in_line)
        self._in_line = max(in_line, key=lambda tailer: tailer.seen, default=None)
        return notices

    def _lasting(self, grace: float, hold: float) -> Limits:
        return replace(self._limits, grace=int(grace * _SECOND), hold=int(hold * _SECOND))

    async def _let_go(self, now: int) -> list[Notice]:
        notices = []
        for tailer in self._roster.unseen():
            reading = await self._probe(tailer)
            said = departure(tailer, reading, now, self._limits)
            if said is None:
                tailer.unseen(now, 0 if reading is None else reading.modified)
                self.is_unsettled = True
                continue
            self._roster.leave(tailer)
            notices.append(said)
            if reading is not None and reading.size and tailer.suspect:
                notices += self._roster.renew(
                    tailer, await self._handles.head(tailer), reading.modified, now
                )
        return notices

    async def _probe(self, tailer: Tailer) -> Reading | None:
        # truncated and then deleted: its rest may be in a copy, and what was written since is still open
        if tailer.sighting.key not in self._handles:
            return None
        descriptor = await self._handles.descriptor(tailer)
        if descriptor is None:
            return None
        if tailer.sighting.packed is not None:
            return Reading(True, tailer.sighting.size, tailer.sighting.modified)
        reading = (await _read([tailer.probe(descriptor)], self._buffer, self._limits))[0]
        tailer.suspect |= not reading.intact
        if len(tailer.beginning) < HEAD_BYTES and not (tailer.suspect or reading.error):
            tailer.glimpsed(await self._handles.head(tailer))
        return reading

    def _heard(self, files: Iterable[FileKey], moved: bool) -> None:
        self._stir(files)
        self.look_due |= moved
        self.wake.set()

    def _stir(self, files: Iterable[FileKey]) -> None:
        tailers = self._roster.tailers
        for tailer in [tailers[key] for key in files if key in tailers]:
            if tailer.sighting.packed is None:
                tailer.stir(self._clock())
                self._turns.setdefault(tailer.sighting.family)
            else:
                self.look_due = True  # whether it is to be unpacked again is for the look to say

    async def _turn(self, budget: int) -> list[tuple[Tailer, Request]]:
        ready = self._ready(1 + budget // self._limits.block_size)
        share = max(self._limits.block_size, min(_MOST_PER_READ, budget // max(1, len(ready))))
        turn: list[tuple[Tailer, Request]] = []
        unpacked = self._handles.next_unpacked(tailer for _, tailer in ready)
        for family, tailer in ready:
            if budget <= 0:
                break
            if tailer.sighting.packed is not None and tailer is not unpacked:
                continue
            if tailer is not unpacked:  # who had a turn goes to the end of the queue
                self._turns[family] = self._turns.pop(family)
            if request := await self._request(tailer, min(share, budget)):
                turn.append((tailer, request))
                budget -= request.limit
        return turn

    def _ready(self, most: int) -> list[tuple[str, Tailer]]:
        if (first := self._in_line) is not None and first.dirty and not first.suspect:
            self._turns.setdefault(first.sighting.family)
            return [(first.sighting.family, first)]
        if self._is_in_line():
            return []
        now, ready = self._clock(), []
        for family in list(self._turns):
            if (tailer := self._next_of(family, now)) is not None:
                ready.append((family, tailer))
                most -= tailer.sighting.packed is None
            if most <= 0:
                break  # the others come after them in the queue
        return ready

    def _next_of(self, family: str, now: int) -> Tailer | None:
        chain = self._roster.chains.get(family, [])
        for tailer in chain:
            if tailer.suspect:
                break
            settled = tailer.is_settled(now, self._limits.grace)
            if tailer.dirty or (tailer.held and settled):
                return tailer
            if tailer.held and tailer.rotated is not None:
                self.is_unsettled = True
                return None  # its last line may yet be finished; the successor waits for that
        self._turns.pop(family, None)
        return None

    async def _request(self, tailer: Tailer, limit: int) -> Request | None:
        descriptor = await self._handles.descriptor(tailer)
        if descriptor is None:
            # its successor waits as well: the next look finds where the file went
            self._turns.pop(tailer.sighting.family, None)
            self.look_due = True
            return None
        request = tailer.request(descriptor, limit, self._limits)
        unpacker = self._handles.unpacker(tailer, descriptor)
        return request if unpacker is None else replace(request, unpacker=unpacker)

    async def _read(self, turn: Sequence[tuple[Tailer, Request]]) -> list[Block]:
        readings = await _read([request for _, request in turn], self._buffer, self._limits)
        self._is_unpacking = any(reading.is_underway for reading in readings)
        now = self._clock()
        blocks: list[Block] = []
        for (tailer, _), reading in zip(turn, readings, strict=True):
            blocks += tailer.accept(reading, now, self._agent, self._limits)
            if tailer.loss is not None and not reading.is_complete:
                self._losses.append(tailer.loss)
            if tailer.suspect or self._losses:
                self.look_due = True
                self.wake.set()
            if tailer.is_in_line:
                self._in_line = tailer
                break  # what the others gave is read again after the line
            if self._in_line is tailer:
                self._in_line = None
        return blocks
