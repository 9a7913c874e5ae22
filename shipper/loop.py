"""The loop of an agent: gathers a round while the one before is in flight, and moves the positions with its acknowledgement.

One round is in flight, one is compressed and one is read meanwhile, so a broker that is away costs neither memory nor
lines: the files wait.
"""

import asyncio
import logging
import math
import random
from collections import ChainMap, deque
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace

from nats_logship.app.exits import OperatorError
from nats_logship.app.faults import fault
from nats_logship.app.text import format_count
from nats_logship.wire.positions import Positions
from shipper.expressions import expression
from shipper.intervals import Intervals
from shipper.line_filter import LineFilter, Rules
from shipper.publish.publisher import Publisher, RoundTooLarge, SessionLost
from shipper.publish.rounds import LEAST_SIZE, NEARBY_SIZE, Round, cut, make, next_size
from shipper.settings import ShipperSettings
from shipper.sources.block import Block
from shipper.sources.files.file import FollowedFile
from shipper.sources.files.follower import Follower
from shipper.sources.files.forgetting import find_forgettable
from shipper.sources.files.paths import compression_of
from shipper.sources.files.sampling import size_at
from shipper.sources.notices import NoticeKind, log_notices
from shipper.status.report import AgentMeter

logger = logging.getLogger(__name__)
_SMALL = 128 * 1024  # bytes of lines that are compressed sooner than a thread would begin
_TRICKLE = 512 * 1024  # bytes of lines that are not worth a round before its interval is over
_LONGEST_PAUSE = 0.2  # seconds between sessions: another client may write to our subject


class Goals:
    """What `--once` is to read: every file as far as it went when the first scan had decided on all files, by file id."""

    def __init__(self) -> None:
        self.scans_left = 5  # for files that move while they are read
        self._sizes: dict[str, int] = {}

    def set(self, states: Iterable[FollowedFile]) -> None:
        """Aim for the sizes of these files; what was aimed for before stays."""
        self._sizes = {state.file: state.size for state in states} | self._sizes

    def are_met(self, states: Iterable[FollowedFile]) -> bool:
        """Whether every file has been read as far, and a compressed one, whose size was not known then, to its end."""
        return all(
            state.offset + state.padding >= self._sizes.get(state.file, 0)
            and (state.since is None or compression_of(state.path) is None)
            for state in states
        )

    def are_waited_for(self, follower: Follower) -> bool:
        """Whether the last line of a rotated file may yet be finished, for which what was written behind it waits."""
        return any(
            state.offset < self._sizes.get(state.file, 0) and follower.is_waited_for(state)
            for state in follower.files()
        )

    def conclude(self, follower: Follower, named: Collection[str]) -> None:
        """Log what is held back at the end; raises `OperatorError` when files cannot be read, or were not.

        What is refused is an error only if it was `named`, not if a glob shows it.
        """
        states = follower.files()
        for state in states:
            if state.held:
                held = format_count(state.held, "byte")
                logger.info("%s: %s of an unfinished last line held", state.path, held)
        for trouble in follower.troubles:
            if trouble.kind is NoticeKind.REFUSED and trouble.path not in named:
                continue
            raise OperatorError(f"{trouble.path}: {trouble.text}; check --file")
        for state in states:
            is_told = state.note and compression_of(state.path)  # of the damage
            read = state.offset + state.held + state.padding
            if read < self._sizes.get(state.file, 0) and not is_told:
                why = state.note or "was rotated again and again"
                raise OperatorError(f"{state.path}: {why}; start it again to read the rest")
        if not follower.has_decided:
            raise OperatorError("files were rotated again and again; start it again")


class ShippingLoop:
    """Ships what a follower reads, in one session after the other.

    `positions` cover what is acknowledged; `moved` is set when they moved; `stopping` says that the end was asked for.
    """

    def __init__(
        self,
        follower: Follower,
        sessions: Publisher,
        settings: ShipperSettings,
        meter: AgentMeter,
        intervals: Intervals,
    ) -> None:
        """Take what the run is made of; `positions` and `follower` may be others before each `run`."""
        self.positions = Positions()
        self.follower = follower
        self.sessions = sessions
        self.meter = meter
        self.moved = asyncio.Event()
        self.stopping = asyncio.Event()
        self.goals = Goals()
        self._settings = settings
        self._intervals = intervals
        self._once = settings.once and not settings.is_input  # its end is that of the input
        self._scanned_at = -math.inf
        self._scan_took = 0.0
        self._size, self._is_slow = LEAST_SIZE, False  # of a round, as the line suits it
        self._begin()

    def _begin(self) -> None:
        """Begin a session with nothing in hand."""
        self.follower.stored = self.position
        self._filter = LineFilter(rules_of(self._settings))
        # what was gathered and not found acknowledged, and when that was read, by file id
        self._sending = deque[asyncio.Task[None]]()
        self._pending = deque[dict[str, int]]()
        self._interval = self._intervals.interval
        self._sent_at = -math.inf
        self._has_found = self._is_behind = self._is_trickle = self._may_cover = False

    def change(self, settings: ShipperSettings) -> None:
        """Work by other settings from the next round on."""
        self._settings = settings
        self._filter.rules = rules_of(settings)

    def stop(self) -> None:
        """Ask for the end."""
        self.stopping.set()
        self.follower.wake.set()

    @property
    def _round_size(self) -> int:
        return self.sessions.most_bytes(self._settings.round_size)

    def resize(self) -> None:
        """Have blocks and lines read that suit the broker and the line."""
        most = self.sessions.most_bytes
        block, line = NEARBY_SIZE, int(self._settings.max_line)
        if self._is_slow:  # a line goes in pieces, too
            block, line = LEAST_SIZE, min(line, LEAST_SIZE)
        self.follower.resize(most(block), most(line))

    @property
    def is_in_flight(self) -> bool:
        """Whether a round is under way and not acknowledged."""
        return any(not task.done() for task in self._sending)

    @property
    def has_scanned(self) -> bool:
        """Whether the first scan is done."""
        return self._scanned_at > -math.inf

    def position(self, file: str) -> int:
        """Return how far a file is acknowledged, by its id, in bytes."""
        cursor = self.positions.files.get(file)
        return 0 if cursor is None else cursor.offset

    def unacknowledged(self) -> dict[str, int]:
        """Return when the oldest lines that are gathered and not acknowledged were read, by file id."""
        return dict(ChainMap(*self._pending))

    async def forget_gone(self, now: int) -> None:
        """Forget files that are not there any more, once they may be forgotten; `now` is nanoseconds since the epoch."""
        # before it is oriented, files that are there are not followed yet, and none would seem to be wanted
        if self.follower.has_decided:
            old = find_forgettable(self.positions.without(self._following()).files.values(), now)
            there = {(one.entry.path, one.entry.key.inode) for one in self.follower.files()}
            # what was written anew in place is another file by now
            left = [one for one in old if (one.path, one.identity.inode) not in there]
            sizes = await asyncio.to_thread(lambda: {one.file: size_at(one) for one in left})
            kept = {file for file, size in sizes.items() if size is not None}
            # one of them may have come back meanwhile
            if gone := {one.file for one in old} - kept - self._following():
                self.positions = self.positions.without(gone)

    def _following(self) -> set[str]:
        return {state.file for state in self.follower.files()}

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Ship until asked to stop or, with `once`, until all that was there at the start is acknowledged.

        The broker has the positions of what was found before a line more is read. Rounds are sent by tasks of `group`; the
        last one is acknowledged at the end. Raises `SessionLost` where the files are to be read again from the positions.
        """
        self._begin()
        await self._scan()
        while not self.stopping.is_set() and await self._step(group):
            await self._scan_when_due()
        await self._acknowledged()
        if self._once and self.follower.is_scan_due:
            await self._scan()  # what was found out by reading is to be logged

    async def _step(self, group: asyncio.TaskGroup) -> bool:
        """Ship what can be read now, or wait for more; return False where `once` is done."""
        await self._wait_for_interval()
        if blocks := await self._gather(group):
            await self._acknowledged(but=1)
            self._send(blocks, group)
        elif self._sending:
            await self._acknowledged()
            return True
        if self._once:
            states, goals = self.follower.files(), self.goals
            if goals.are_met(states) if blocks else not goals.are_waited_for(self.follower):
                return await self._scan_again()
        if not blocks:
            await self.follower.wait(min(self._until_scan(), self.follower.poll_in))
        return True

    # scanning

    async def _scan(self) -> None:
        clock = asyncio.get_running_loop().time
        began, had_decided = clock(), self.follower.has_decided
        notices = await self.follower.scan()
        self._scanned_at = clock()
        self._scan_took = self._scanned_at - began
        if not had_decided:
            self.goals.set(self.follower.files())
        self._add_found()
        self._may_cover = True
        self.meter.noticed(notices)
        log_notices(notices)

    async def _scan_when_due(self) -> None:
        if self._until_scan() <= 0:
            await self._scan()

    def _until_scan(self) -> float:
        """Return the seconds until the next scan: scans take a hundredth of the time, where files come and go a tenth."""
        intervals, took = self._intervals, self._scan_took
        after = max(intervals.scan_every, 100 * took)
        if self.follower.is_scan_due:
            after = max(intervals.scan_after, 10 * took)
        return self._scanned_at + after - asyncio.get_running_loop().time()

    async def _scan_again(self) -> bool:
        """Scan for files that moved while they were read with `once`, a few times at most; return whether that was done."""
        if not (self.follower.is_scan_due and self.goals.scans_left):
            return False
        self.goals.scans_left -= 1
        await self._pause(self._until_scan())
        await self._scan()
        return True

    def _add_found(self) -> None:
        known = self.positions.files
        # before the follower is oriented, a position without a file may yet find it
        waiting = () if self.follower.has_decided else known.values()
        starts = self.follower.start_cursors(self.positions.started_files())
        found = self.positions.with_starts([*waiting, *starts])
        ended = self.follower.ended_files
        self.positions = found.with_ended(ended, self._following() - ended)
        # a file that is gone by the next start must be known to have ended
        has_ended = self.positions is not found
        self._has_found |= has_ended or bool(self.positions.files.keys() - known.keys())

    # gathering

    async def _gather(self, group: asyncio.TaskGroup) -> list[Block]:
        while not self.stopping.is_set():
            await self._save_found(group)
            read = blocks = await self._read()
            if read:
                fault("gathered")
            if read and not self._filter.is_idle:
                blocks = await asyncio.to_thread(self._filter.filter, read)
            if blocks := blocks or self._left_out(is_last=not read):
                return blocks
            if not read:
                break
            await self._scan_when_due()  # every line may be left out for long
        return []

    def _left_out(self, *, is_last: bool) -> list[Block]:
        """Return empty blocks over what was left out, once behind each scan, and at the end of `once`."""
        if not (self._may_cover or (is_last and self._once)):
            return []
        blocks = self._filter.left_out()
        self._may_cover &= not blocks
        return blocks

    async def _save_found(self, group: asyncio.TaskGroup) -> None:
        """Return once the broker knows of every file that was found; scans go on while it is away."""
        while self._has_found:
            self._has_found = False
            await self._done(group.create_task(self.sessions.save(self.positions)))

    async def _read(self) -> list[Block]:
        if self._is_slow and self._size >= NEARBY_SIZE:
            self._is_slow = False
            self.resize()
        budget = min(self._size, self._round_size)
        blocks = await self.follower.gather(budget)
        self._is_behind = sum(len(block.lines) for block in blocks) >= budget // 2
        return blocks

    # sending

    def _send(self, blocks: list[Block], group: asyncio.TaskGroup) -> None:
        size = sum(len(block.lines) for block in blocks)
        self._is_trickle = size < _TRICKLE and not self._is_behind
        before, self._sent_at = self._sent_at, asyncio.get_running_loop().time()
        lines = sum(block.section.lines for block in blocks)
        self._interval = self._intervals.interval_after(lines, self._sent_at - before)
        self._pending.append({block.section.span.file: blocks[0].read_at for block in blocks})
        last = self._sending[-1] if self._sending else None
        self._sending.append(group.create_task(self._ship(blocks, size, last)))

    async def _ship(
        self, blocks: list[Block], size: int, last: "asyncio.Task[None] | None"
    ) -> None:
        """Make rounds of blocks, and publish them once the `last` ones are acknowledged."""
        if size < _SMALL or self._settings.compression == "none":
            rounds = self._make(blocks)
        else:
            rounds = await asyncio.to_thread(self._make, blocks)
        del blocks  # their lines are memory
        if last is not None:
            await last
        for round_ in rounds:
            if self.stopping.is_set():
                return  # it is read again at the next start
            await self._publish_round(round_)
        self._pending.popleft()

    def _make(self, blocks: list[Block]) -> list[Round]:
        agent, cuts = self.sessions.agent, cut(blocks, self._round_size)
        return [make(some, agent, self._settings.compression) for some in cuts]

    async def _publish_round(self, round_: Round) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        sequence = await self.sessions.in_time(self._publish(round_), len(round_.payload))
        self.positions = self.positions.advance([round_.origin], sequence, self.sessions.stream)
        self.moved.set()
        fault("advanced")
        self.meter.acknowledged(round_)
        self._size = next_size(self._size, round_, clock() - began, self._round_size)

    async def _publish(self, round_: Round) -> int:
        """Publish a round, in the next session where one is lost; raises `SessionLost` where the positions moved meanwhile.

        Whoever writes to our subject again and again costs the round a claim, not a scan and another reading.
        """
        sessions = self.sessions
        while True:
            try:
                if self._settings.ack:
                    return await sessions.publish(round_)
                return await sessions.publish_unacknowledged(round_)
            except SessionLost as lost:
                logger.info("%s; claiming again", lost)
                is_too_large = isinstance(lost, RoundTooLarge)
            await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE))
            known = self.positions
            await sessions.prepare()
            found = await sessions.claim(known) if self._settings.ack else known
            if is_too_large:
                self._size, self._is_slow = LEAST_SIZE, True
            is_other = found.files != known.files or is_too_large
            if is_other or len(round_.payload) > sessions.max_payload:
                self.positions = found
                raise SessionLost("the files are read again from other positions")
            self.positions = replace(self.positions, covered=found.covered)

    async def _acknowledged(self, but: int = 0) -> None:
        """Return when no more than so many are under way of what was gathered; raises what went wrong with the others."""
        while len(self._sending) > but:
            await self._done(self._sending[0])
            self._sending.popleft()

    async def _done(self, task: "asyncio.Task[None]") -> None:
        """Return when a task has ended; files come and go, and deleted ones must be closed in time, although the broker is away."""
        while not (await asyncio.wait({task}, timeout=self._intervals.scan_every))[0]:
            await self._scan_when_due()
        await task

    # waiting

    async def _wait_for_interval(self) -> None:
        # the lines of a trickle are read when they can be sent, so that no block waits
        if self._is_trickle and not self._once:
            await self._acknowledged()
            since = asyncio.get_running_loop().time() - self._sent_at
            await self._pause(self._interval - since)

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.stopping.wait()


def rules_of(settings: ShipperSettings) -> Rules:
    """Return which lines are shipped."""
    include, exclude = settings.include_lines, settings.exclude_lines
    return Rules(tuple(map(expression, include)), tuple(map(expression, exclude)))
