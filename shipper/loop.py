"""The main loop of a shipper: scan, gather lines, send rounds, wait.

    sources ──gather──▶ blocks ──line filter──▶ blocks ──sender──▶ rounds ──publisher──▶ stream
       ▲                                                                                    │
       └───────────────── acknowledged: positions ◀──────────────── acknowledgements ───────┘

Rounds are published by tasks of their own, so scans go on while the broker is away.
"""

import asyncio
import math
import random
from dataclasses import dataclass

from nats_logship.app.faults import fault
from shipper.line_filter import ExpressionFilter, Rules
from shipper.once import Goals
from shipper.publish.publisher import Publisher
from shipper.sender import Sender, Task
from shipper.settings import ShipperSettings
from shipper.sources.acknowledged import Acknowledged
from shipper.sources.block import Block
from shipper.sources.notices import log_notices
from shipper.sources.source import Source
from shipper.status.report import AgentMeter
from shipper.timer import wait_for_event

_SMALL_ROUND = 512 * 1024  # bytes of lines that are not worth a round before its interval is over


@dataclass(frozen=True, slots=True)
class Intervals:
    """The intervals of the loop, in seconds.

    Sources are scanned every `scan_every` seconds, or `scan_after` seconds after the last scan if
    files came or went. After a small round the next one is gathered when about `round_lines` lines
    have come, but `least_interval` to `interval` seconds after the round was sent: a round of one
    line costs about as much as one of a hundred. The broker may ask for more seconds.
    """

    scan_after: float = 0.2
    scan_every: float = 5.0
    scan_longest: float = 30.0
    interval: float = 0.2
    least_interval: float = 0.02
    round_lines: int = 170

    def interval_after(self, lines: int, size: int, seconds: float, asked: float = 0.0) -> float:
        """Return the seconds from a round to the next; the broker asks for `asked` of them.

        The round's `lines`, of `size` bytes, came in `seconds`. The next round is sent before it
        is too large for a small one.
        """
        expected = self.round_lines * seconds / max(1, lines)
        own = min(self.interval, max(self.least_interval, expected))
        return max(own, min(asked, _SMALL_ROUND * seconds / max(1, size)))

    def scan_interval(self, took: float, *, is_due: bool) -> float:
        """Return the seconds from a scan to the next; `is_due` if files came or went.

        A scan takes `took` seconds: scans take at most a hundredth of the time, or a tenth if due;
        more if they would be `scan_longest` apart.
        """
        least, parts = (self.scan_after, 10) if is_due else (self.scan_every, 100)
        return max(least, min(parts * took, self.scan_longest))


class ShippingLoop:
    """Ships what a source reads.

    The positions of `acknowledged` may be replaced before each `run`. `stopping` is set once the
    end was asked for.
    """

    def __init__(
        self,
        source: Source,
        publisher: Publisher,
        settings: ShipperSettings,
        meter: AgentMeter,
        intervals: Intervals,
    ) -> None:
        self.source = source
        self.acknowledged = Acknowledged()
        self.stopping = asyncio.Event()
        self._pausing = asyncio.Event()  # set at the end of a pause
        self.sender = Sender(publisher, self.acknowledged, meter, settings, self.stopping)
        self.goals = Goals()
        self._publisher = publisher
        self._settings = settings
        self._meter = meter
        self._intervals = intervals
        # hosts that sent at the same time, such as after an outage, soon do not any more
        self._share = random.uniform(0.9, 1.1)  # of the interval that the broker asks for
        self._scanned_at = -math.inf
        self._scan_took = self._last_took = 0.0
        self._once = settings.once
        self._begin_session()

    def _begin_session(self) -> None:
        self.source.stored = self.acknowledged.position
        self.sender.begin_session()
        cursors = self.acknowledged.positions.files.values()
        self._filter = ExpressionFilter(_rules(self._settings), cursors)
        self._sizes = (0, 0, 0)  # of blocks, lines and entries, as the source gives them
        self._sent_at, self._interval = -math.inf, 0.0  # the last round, and the seconds after it
        self.acknowledged.is_unsaved = False
        self._is_behind = self._is_small = self._may_cover = False

    def change(self, settings: ShipperSettings) -> None:
        """Use other settings from the next round on."""
        self._settings = settings
        self.sender.change(settings)
        self._filter.rules = _rules(settings)

    def stop(self) -> None:
        """Ask for the end."""
        self.stopping.set()
        self.sender.limit.wake()
        self._pausing.set()
        self.source.wake.set()

    @property
    def has_scanned(self) -> bool:
        """Whether a scan is done."""
        return self._scanned_at > -math.inf

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Ship until `stop` or the end of the source is acknowledged.

        With `--once`, until all that the first scan found is. The broker has the positions of
        found files before a line of them is read. Rounds are sent by tasks of `group`; at the end
        the last one is acknowledged. Raises `SessionLost` if the source must be read again from
        the positions.
        """
        self._begin_session()
        await self._scan()
        while not self.stopping.is_set() and await self._step(group):
            await self._scan_when_due()
        await self._wait_for_acknowledgements()
        if self._once and self.source.is_scan_due:
            await self._scan()  # to log what was found by reading

    async def _step(self, group: asyncio.TaskGroup) -> bool:
        """Ship what can be read now, or wait for more; return False once `--once` is done."""
        await self._wait_for_interval()
        if blocks := await self._gather(group):
            await self._wait_for_acknowledgements(but=1)
            self._send(blocks, group)
        elif self.sender.tasks:
            await self._wait_for_acknowledgements()
            return True
        if self._once:
            files, goals = self.source.files(), self.goals
            is_read = goals.are_met(files) if blocks else not goals.are_awaited(files)
            if is_read:
                return await self._scan_again()
        elif not blocks and self.source.has_ended:
            return False
        if not blocks:
            self.source.await_change()
            await wait_for_event(self.source.wake, min(self._until_scan(), self.source.poll_in))
            self.source.wake.clear()
        return True

    # scan

    async def _scan(self) -> None:
        clock = asyncio.get_running_loop().time
        began, had_decided = clock(), self.source.has_decided
        notices = await self.source.scan()
        self._scanned_at = clock()
        took = self._scanned_at - began
        # a machine or a program that was suspended for a while makes one scan long, not the next
        self._scan_took, self._last_took = min(took, self._last_took), took
        if not had_decided:
            self.goals.add(self.source.files())
        self.acknowledged.add_found(self.source)
        self._may_cover = True
        self._meter.count_notices(notices)
        log_notices(notices)

    async def _scan_when_due(self) -> None:
        if self._until_scan() <= 0:
            await self._scan()

    def _until_scan(self) -> float:
        interval = self._intervals.scan_interval(self._scan_took, is_due=self.source.is_scan_due)
        return self._scanned_at + interval - asyncio.get_running_loop().time()

    async def _scan_again(self) -> bool:
        """With `--once`, scan for files that were rotated meanwhile; False after five scans."""
        if not (self.source.is_scan_due and self.goals.scans_left):
            return False
        self.goals.scans_left -= 1
        await self._pause(self._until_scan())
        await self._scan()
        return True

    # gather

    async def _gather(self, group: asyncio.TaskGroup) -> list[Block]:
        while not self.stopping.is_set():
            await self._save_found(group)
            read = blocks = await self._read()
            if read:
                fault("gathered")
            if read and not self._filter.is_idle:
                blocks = await asyncio.to_thread(self._filter.filter, read)
            if blocks := blocks or self._cover_left_out(is_last=not read):
                return blocks
            if not read:
                break
            await self._scan_when_due()  # the filter may leave out every line for long
        return []

    async def _save_found(self, group: asyncio.TaskGroup) -> None:
        """Return once the broker knows of every file that was found; scan meanwhile."""
        while self.acknowledged.is_unsaved:
            self.acknowledged.is_unsaved = False
            saving = self._publisher.save(self.acknowledged.positions)
            await self._wait_for(group.create_task(saving))

    async def _read(self) -> list[Block]:
        budget, sizes = self.sender.budget, self.sender.read_sizes()
        if sizes != self._sizes:
            self._sizes = sizes
            self.source.resize(*sizes)
        blocks = await self.source.gather(budget)
        self._is_behind = sum(len(block.lines) for block in blocks) >= budget // 2
        return blocks

    def _cover_left_out(self, *, is_last: bool) -> list[Block]:
        """Return empty blocks over lines left out: after a scan, or at the end."""
        is_end = is_last and (self._once or self.source.has_ended)
        if not (self._may_cover or is_end):
            return []
        blocks = self._filter.cover_left_out()
        self._may_cover &= not blocks
        return blocks

    # send

    def _send(self, blocks: list[Block], group: asyncio.TaskGroup) -> None:
        size = sum(len(block.lines) for block in blocks)
        self._is_small = size < _SMALL_ROUND and not self._is_behind
        before, self._sent_at = self._sent_at, asyncio.get_running_loop().time()
        lines, seconds = sum(block.section.lines for block in blocks), self._sent_at - before
        asked = self._publisher.config.interval.seconds * self._share
        self._interval = self._intervals.interval_after(lines, size, seconds, asked)
        self.sender.send(blocks, group)

    # wait

    async def _wait_for_acknowledgements(self, but: int = 0) -> None:
        """Return when all sendings `but` so many are done; raises their errors."""
        while len(self.sender.tasks) > but:
            await self._wait_for(self.sender.tasks[0])
            self.sender.tasks.popleft()

    async def _wait_for(self, task: Task) -> None:
        """Return when a task is done, and scan meanwhile: files come and go without the broker."""
        while not task.done():
            if not (await asyncio.wait({task}, timeout=self._intervals.scan_every))[0]:
                await self._scan_when_due()
        await task

    async def _wait_for_interval(self) -> None:
        # a few lines are read only when they can be sent at once
        if self._is_small and not self._once:
            await self._wait_for_acknowledgements()
            since = asyncio.get_running_loop().time() - self._sent_at
            await self._pause(self._interval - since)

    async def _pause(self, seconds: float) -> None:
        if seconds > 0 and not self.stopping.is_set():
            self._pausing.clear()
            await wait_for_event(self._pausing, seconds)


def _rules(settings: ShipperSettings) -> Rules:
    return Rules.of(settings.include_lines, settings.exclude_lines)
