"""Gathers lines from the followed files, turn by turn. What it finds doubtful it leaves to the next look."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from shipper.block import Block
from shipper.files.handles import Handles
from shipper.files.limits import Limits
from shipper.files.reader import Reader
from shipper.files.reading import Request
from shipper.files.sighting import FileKey
from shipper.files.tailer import Tailer
from shipper.following.roster import Roster
from shipper.following.summons import Summons
from shipper.following.turns import Turns, one_unpacked, share
from shipper.notice import Notice

__all__ = ["Gathering"]

_ENOUGH = 200
"""Blocks: about what a round's headers have room for."""

_WORTH = 16 * 1024
"""Bytes: what is left of a budget once a file has used it up to its last whole line is not worth a visit."""


class Gathering:
    """Reads the files of a roster, and moves their read cursors; `clock` gives nanoseconds since the epoch.

    `is_growing` says whether a file was written just now, on this machine: that is read at once, which costs less than a
    thread's hop.
    """

    def __init__(
        self,
        roster: Roster,
        handles: Handles,
        reader: Reader,
        summons: Summons,
        *,
        is_growing: Callable[[FileKey], bool],
        clock: Callable[[], int],
    ) -> None:
        self.turns = Turns()
        self._roster = roster
        self._handles = handles
        self._reader = reader
        self._summons = summons
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
            await self._handles.trim_excess(self._roster.tailers)
            if self._is_unpacking and not got:
                break  # so that it can be stopped
        return blocks

    @property
    def is_waiting(self) -> bool:
        """Whether there is more to gather soon: behind a long way through a compressed file, or an over-long line."""
        return self._is_unpacking or self.turns.is_held(self._clock())

    def stir(self, files: Iterable[FileKey]) -> None:
        """Take note that there may be something to read in these files."""
        tailers = self._roster.tailers
        for tailer in [tailers[key] for key in files if key in tailers]:
            if tailer.sighting.packed is None:
                tailer.stir(self._clock())
                self.turns.join([tailer.sighting.family])
            else:
                self._summons.look_due = True  # whether to unpack it again is for the look to say

    def take_losses(self) -> list[Notice]:
        """Return what was found to be lost since the last call."""
        losses, self._losses = self._losses, []
        return losses

    async def _turn(self, budget: int, limits: Limits) -> list[tuple[Tailer, Request]]:
        most = 1 + budget // limits.share
        due = self.turns.next(self._roster.chains, self._clock(), limits.grace, most)
        self._summons.is_unsettled |= due.is_unsettled
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
            self.turns.leave(tailer.sighting.family)
            self._summons.look_due = True
            return None
        request = tailer.request(descriptor, limit, limits)
        unpacker = self._handles.unpacker(tailer, descriptor)
        return request if unpacker is None else replace(request, unpacker=unpacker)

    async def _read(self, turn: Sequence[tuple[Tailer, Request]], limits: Limits) -> list[Block]:
        requests = [request for _, request in turn]
        readings = None
        if all(self._is_growing(tailer.sighting.key) for tailer, _ in turn):
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
                self._summons.call_to_look()
            self.turns.was_read(tailer)
            if tailer.is_in_line:
                break  # what the others gave is read again after the line
        return blocks
