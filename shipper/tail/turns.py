"""Decides which file is read next, and reads it: rotation groups in turns, within a group the oldest file first."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shipper.tail.catalogue import Catalogue
from shipper.tail.notices import Notice
from shipper.tail.open_files import Handles
from shipper.tail.reader import Block, Limits, Reader, Request
from shipper.tail.scan import FileKey
from shipper.tail.tailer import LINE_PATIENCE, Tailer

__all__ = ["MOST_PER_TURN", "Gathering", "Turn", "Turns", "WakeUp", "one_unpacked", "share"]


@dataclass(slots=True)
class WakeUp:
    """`wake` is set on any change, `look_due` when a look would find something, `is_unsettled` when one will before long.

    It will where a file that was rotated or deleted waits for its end.
    """

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    look_due: bool = True
    is_unsettled: bool = False

    def call_to_look(self) -> None:
        """Wake the loop, for a look."""
        self.look_due = True
        self.wake.set()


MOST_PER_TURN = 2 * 1024 * 1024
"""Bytes taken from one file at a time: enough to make the visit to a thread cheap, few enough to be fair."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Who is read next, in this order; `is_unsettled` when files were met whose last line may yet be finished."""

    tailers: Sequence[Tailer]
    is_unsettled: bool = False


def share(budget: int, readers: int, least: int) -> int:
    """Return how many bytes each may take: an equal part, at least `least`, so that small budgets still move on."""
    return max(least, min(MOST_PER_TURN, budget // max(1, readers)))


class Turns:
    """The chains that may have something to read, in the order in which they come to their turn."""

    def __init__(self) -> None:
        self._queue: dict[str, None] = {}
        self._line: Tailer | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def join(self, groups: Iterable[str]) -> None:
        """Put the chains of these groups at the end of the queue; those that stand in it keep their place."""
        self._queue.update(dict.fromkeys(groups))

    def leave(self, group: str) -> None:
        """Take a chain out of the queue until it joins again."""
        self._queue.pop(group, None)

    def next(self, chains: Mapping[str, Sequence[Tailer]], now: int, grace: int, most: int) -> Turn:
        """Return the next `most` files to read; `grace` is in nanoseconds. Chains that have nothing leave the queue.

        Compressed files come on top of these: unpacking takes its time. Nobody while the rest of an over-long line is
        waited for, and only that file once it is there.
        """
        if (line := self._line) is not None and line.dirty and not line.suspect:
            self.join([line.entry.group])
            return Turn([line])
        if self.is_held(now):
            return Turn([])
        ready: list[Tailer] = []
        is_unsettled = False
        for group in list(self._queue):
            first = _first(chains.get(group, ()))
            if first is None:
                self.leave(group)
            elif first.dirty or first.is_settled(now, grace):
                ready.append(first)
                most -= first.entry.packed is None
            else:
                is_unsettled = True
            if most <= 0:
                break  # the others come after them in the queue
        return Turn(ready, is_unsettled)

    def took(self, tailer: Tailer) -> None:
        """Take note that a file has its turn: its chain goes to the end of the queue, but a compressed file goes on."""
        if tailer.entry.packed is None:
            self._queue[tailer.entry.group] = self._queue.pop(tailer.entry.group)

    def was_read(self, tailer: Tailer) -> None:
        """Take note of whether a file that was read stands in the middle of an over-long line now."""
        if tailer.is_in_line:
            self._line = tailer
        elif self._line is tailer:
            self._line = None

    def resume(self, tailers: Iterable[Tailer]) -> None:
        """Go on in the line that was read last of these files, if one stands in the middle of a line."""
        begun = (tailer for tailer in tailers if tailer.is_in_line)
        self._line = max(begun, key=lambda tailer: tailer.seen, default=None)

    def is_held(self, now: int) -> bool:
        """Whether all files wait for the rest of a line, which is still being written; a second at most."""
        line = self._line
        if line is None or line.dirty or line.suspect:
            return False
        # a clock that was set back would make all files wait until it is there again
        return line.line_began <= now < line.line_began + LINE_PATIENCE


def one_unpacked(tailers: Sequence[Tailer], begun: FileKey | None) -> list[Tailer]:
    """Return these without the compressed files but one, since each takes memory: the one that was `begun`, or the first."""
    packed = [tailer for tailer in tailers if tailer.entry.packed is not None]
    chosen = next((t for t in packed if t.entry.key == begun), packed[0] if packed else None)
    return [t for t in tailers if t.entry.packed is None or t is chosen]


def _first(chain: Iterable[Tailer]) -> Tailer | None:
    # which file those behind it wait for; behind a doubtful one nobody knows what comes next
    for tailer in chain:
        if tailer.suspect:
            return None
        if tailer.dirty or (tailer.held and tailer.rotated is not None):
            return tailer
    return None


_ENOUGH = 200
"""Blocks: about what a round's headers have room for."""

_WORTH = 16 * 1024
"""Bytes: what is left of a budget once a file has used it up to its last whole line is not worth a visit."""


class Gathering:
    """Reads the files of a catalogue, and moves their read cursors; `clock` gives nanoseconds since the epoch.

    `is_growing` says whether a file was written just now, on this machine: that is read at once, which costs less than a
    thread's hop.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        handles: Handles,
        reader: Reader,
        wake_up: WakeUp,
        *,
        is_growing: Callable[[FileKey], bool],
        clock: Callable[[], int],
    ) -> None:
        self.turns = Turns()
        self._catalogue = catalogue
        self._handles = handles
        self._reader = reader
        self._wake_up = wake_up
        self._is_growing = is_growing
        self._clock = clock
        self._losses: list[Notice] = []
        self._is_unpacking = False

    async def gather(self, budget: int, limits: Limits) -> list[Block]:
        """Return about `budget` bytes of lines that are readable now, as `Follower` says."""
        blocks: list[Block] = []
        self._is_unpacking = False
        while (
            budget >= (_WORTH if blocks else 1)
            and len(blocks) < _ENOUGH
            and (turn := await self._turn(budget, limits))
        ):
            got = await self._read(turn, limits)
            budget -= sum(len(block.lines) for block in got)
            blocks += got
            await self._handles.trim_excess(self._catalogue.tailers)
            if self._is_unpacking and not got:
                break  # so that it can be stopped
        return blocks

    @property
    def is_waiting(self) -> bool:
        """Whether there is more to gather soon: behind a long way through a compressed file, or an over-long line."""
        return self._is_unpacking or self.turns.is_held(self._clock())

    def stir(self, files: Iterable[FileKey]) -> None:
        """Take note that there may be something to read in these files."""
        tailers = self._catalogue.tailers
        for tailer in [tailers[key] for key in files if key in tailers]:
            if tailer.entry.packed is None:
                tailer.stir(self._clock())
                self.turns.join([tailer.entry.group])
            else:
                self._wake_up.look_due = True  # whether to unpack it again is for the look to say

    def take_losses(self) -> list[Notice]:
        """Return what was found to be lost since the last call."""
        losses, self._losses = self._losses, []
        return losses

    async def _turn(self, budget: int, limits: Limits) -> list[tuple[Tailer, Request]]:
        most = 1 + budget // limits.share
        due = self.turns.next(self._catalogue.chains, self._clock(), limits.grace, most)
        self._wake_up.is_unsettled |= due.is_unsettled
        each = share(budget, len(due.tailers), limits.share)
        turn: list[tuple[Tailer, Request]] = []
        for tailer in one_unpacked(due.tailers, self._handles.unpacked):
            if budget <= 0:
                break
            self.turns.took(tailer)
            if request := await self._request(tailer, min(each, budget), limits):
                turn.append((tailer, request))
                budget -= request.limit
        return turn

    async def _request(self, tailer: Tailer, limit: int, limits: Limits) -> Request | None:
        descriptor = await self._handles.descriptor(tailer)
        if descriptor is None:
            # its successor waits as well: the next look finds where the file went
            self.turns.leave(tailer.entry.group)
            self._wake_up.look_due = True
            return None
        request = tailer.request(descriptor, limit, limits)
        unpacker = self._handles.unpacker(tailer, descriptor)
        return request if unpacker is None else replace(request, unpacker=unpacker)

    async def _read(self, turn: Sequence[tuple[Tailer, Request]], limits: Limits) -> list[Block]:
        requests = [request for _, request in turn]
        readings = None
        if all(self._is_growing(tailer.entry.key) for tailer, _ in turn):
            readings = self._reader.read_at_once(requests)
        if readings is None:
            readings = await self._reader.read(requests)
        self._is_unpacking = any(reading.is_underway for reading in readings)
        now = self._clock()
        blocks: list[Block] = []
        for (tailer, _), reading in zip(turn, readings, strict=True):
            blocks += tailer.accept(reading, now, limits)
            if tailer.loss is not None and not reading.is_complete:
                self._losses.append(tailer.loss)
            if tailer.suspect or self._losses:
                self._wake_up.call_to_look()
            self.turns.was_read(tailer)
            if tailer.is_in_line:
                break  # what the others gave is read again after the line
        return blocks
