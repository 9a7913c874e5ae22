"""The loop of an agent: gathers a round while the one before is in flight, and moves the positions with its ack.

Never more than one round in flight, one in hand and, behind a backlog, one read ahead, so a broker that is away costs
neither memory nor lines: the source files wait. What to do about troubles is decided elsewhere; this room only keeps the order.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from broker.app.faults import fault
from broker.client.connection import BrokerAway
from shipper.announcing import announce
from shipper.block import Block
from shipper.flight import Flight
from shipper.following.follower import Follower
from shipper.goals import Goals, conclude
from shipper.notice import Notice
from shipper.pace import Pace, schedule
from shipper.positions import Positions
from shipper.publishing.compression import make
from shipper.publishing.rounds import FIRST_SIZE, Round, cut, next_size
from shipper.sieve import Sieve
from shipper.telling.meter import Meter

__all__ = ["Shipping"]

Answer = TypeVar("Answer")
Save = Callable[[Positions], Awaitable[None]]

logger = logging.getLogger(__name__)


class Shipping:
    """Ships what a source has, from the claim to the end of the agent or of its ownership."""

    def __init__(
        self,
        source: Follower,
        agent: str,
        publish: Callable[[Round], Awaitable[int]],
        positions: Positions,
        pace: Pace,
        stopping: asyncio.Event,
        meter: Meter,
    ) -> None:
        """Begin at `positions`; `agent` is the id of this agent, `publish` returns the sequence of a stored round; `stopping` asks for the end.

        `reading_since` is when the look or the gathering under way began, on the loop's clock; None between them. `moved` is
        set whenever the positions have moved.
        """
        self.positions = positions
        self.moved = asyncio.Event()
        self.reading_since: float | None = None
        self._meter = meter
        self._source = source
        self._agent = agent
        self._publish = publish
        self._pace = pace
        self._sieve = Sieve(pace.rules, positions.files.values())
        self._stopping = stopping
        self._stopper: asyncio.Task[None] | None = None
        self._save: Save | None = None
        self._has_found = False
        self._flight = Flight()
        self._looked = float("-inf")
        self._schedule = schedule(pace, 0)
        self._trickles = False
        self._goals = Goals()
        self._size = min(FIRST_SIZE, pace.round_size)
        self._is_behind = self._has_left_out = False
        self._ahead: asyncio.Task[list[Block]] | None = None

    def change_pace(self, pace: Pace) -> None:
        """Breathe in another way from the next round on."""
        self._pace = pace
        self._sieve.change(pace.rules)

    @property
    def is_in_flight(self) -> bool:
        """Whether a round has been sent and not been acknowledged."""
        return self._flight.is_under_way

    @property
    def has_looked(self) -> bool:
        """Whether the first look is done."""
        return self._looked > float("-inf")

    @property
    def is_oriented(self) -> bool:
        """Whether the last look has told which of the files that are there have a position."""
        return self._source.is_oriented

    def position(self, file: str) -> int:
        """Return how far a file is acknowledged, by its id, in bytes."""
        cursor = self.positions.files.get(file)
        return 0 if cursor is None else cursor.offset

    def following(self) -> set[str]:
        """Return the ids of the files that are followed now."""
        return {state.file for state in self._source.states()}

    async def run(self, group: asyncio.TaskGroup, save: Save | None = None) -> None:
        """Ship until asked to stop or, with `once`, until all that was there at the start is acknowledged.

        `save` is given the positions when files were found, and has returned before a line more is read.
        Rounds fly as tasks of `group`; the last one has landed at the end. Raises what `publish` raises.
        """
        self._save = save
        self._stopper = group.create_task(self._wake_at_the_end())
        try:
            await self._work(group)
        finally:
            self._stopper.cancel()
        await self._land()
        await self._finish_reading()
        if self._pace.once and self._source.look_due:
            await self._look()  # what was found out by reading is to be said
        self._pass_over()

    async def _work(self, group: asyncio.TaskGroup) -> None:
        await self._look()
        while not self._is_stopped:
            await self._breathe()
            rounds = await self._gather(group)
            for round_ in rounds:
                await self._launch(round_, group)
            if not rounds and self._flight.has_begun:
                await self._land()
            elif self._ahead is None and self._is_done(rounds):
                if not await self._look_again():
                    break
            elif not rounds:
                await self._idle()
            await self._look_when_due()

    def conclude(self) -> None:
        """Say what is held back at the end of `once`; raises `OperatorError` when files were not read."""
        conclude(self._source, self._goals)

    async def _look(self) -> None:
        await self._finish_reading()
        clock = asyncio.get_running_loop().time
        began, was_oriented = clock(), self._source.is_oriented
        with self._reading():
            notices = await self._source.look()
        self._looked = clock()
        if not was_oriented:
            self._goals.aim(self._source.states())
        self._find()
        self._pass_over()
        self._schedule = schedule(self._pace, self._looked - began)
        self._tell(notices)

    def _find(self) -> None:
        known = self.positions.files
        waiting = () if self._source.is_oriented else known.values()  # to be found there yet
        starts = self._source.starts(self.positions.begun())
        self.positions = self.positions.found([*waiting, *starts])
        self._has_found |= bool(self.positions.files.keys() - known.keys())

    def _tell(self, notices: list[Notice]) -> None:
        troubles = {notice.path for notice in notices if notice.kind.is_trouble}
        self._meter.noticed(notices)
        # with `once` troubles are what it ends with
        announce(notice for notice in notices if not (self._pace.once and notice.path in troubles))

    def _pass_over(self) -> None:
        self._has_left_out = False
        if not self._sieve.is_idle:
            self.positions = self.positions.passed(self._sieve.passed())
            self._sieve.keep({*self.positions.files, *self.following()})
            self.moved.set()

    async def _look_when_due(self) -> None:
        if asyncio.get_running_loop().time() - self._looked >= self._look_interval():
            await self._look()

    def _look_interval(self) -> float:
        if self._source.look_due:
            return self._schedule.when_called
        return self._schedule.when_unsettled if self._source.is_unsettled else self._schedule.anyway

    async def _look_again(self) -> bool:
        """Look for what moved while it was read with `once`, a few times at most; return whether that was done."""
        if not (self._pace.once and self._source.look_due and self._goals.looks_left):
            return False
        self._goals.looks_left -= 1
        await self._pause(self._look_interval())
        await self._look()
        return True

    async def _gather(self, group: asyncio.TaskGroup) -> list[Round]:
        await self._save_found(group)
        while not self._is_stopped and (blocks := await self._next()):
            fault("gathered")
            if not self._sieve.is_idle:
                read, blocks = blocks, await asyncio.to_thread(self._sieve.sift, blocks)
                self._has_left_out |= len(blocks) < len(read)
            if blocks:
                rounds = await self._make(blocks, group)
                self._meter.gathered(rounds)
                return rounds
            await self._look_when_due()  # no line of them is left, which may be so for long
        return []

    async def _save_found(self, group: asyncio.TaskGroup) -> None:
        """Return once the broker knows of every file that was found; the files are looked at although it is away."""
        while self._has_found and self._save is not None and self._stopper is not None:
            self._has_found = False
            saving = group.create_task(self._in_time(self._save(self.positions)))
            while not saving.done() and not self._is_stopped:
                await asyncio.wait(
                    {saving, self._stopper},
                    timeout=self._pace.look_every,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                await self._look_when_due()
            if self._is_stopped:
                saving.cancel()
                return

    async def _make(self, blocks: list[Block], group: asyncio.TaskGroup) -> list[Round]:
        size = sum(len(block.lines) for block in blocks)
        if size < self._pace.small or self._pace.compression == "none":
            return self._make_all(blocks)  # sooner than a thread would begin
        if self._is_behind:
            self._ahead = group.create_task(self._read())
        return await asyncio.to_thread(self._make_all, blocks)

    def _make_all(self, blocks: list[Block]) -> list[Round]:
        pace = self._pace
        return [make(some, self._agent, pace.compression) for some in cut(blocks, pace.round_size)]

    async def _next(self) -> list[Block]:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and (blocks := await ahead):
            return blocks
        return await self._read()

    async def _read(self) -> list[Block]:
        budget = self._size
        with self._reading():
            blocks = await self._source.gather(budget)
        self._is_behind = sum(len(block.lines) for block in blocks) >= budget // 2
        return blocks

    async def _finish_reading(self) -> None:
        """Wait for what is read ahead: it is in hand, and nothing else is done to the files meanwhile."""
        if self._ahead is not None:
            await asyncio.wait({self._ahead})

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self.reading_since = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            self.reading_since = None

    async def _launch(self, round_: Round, group: asyncio.TaskGroup) -> None:
        await self._land()
        if self._is_stopped:
            return  # it is read again at the next start
        self._trickles = len(round_.payload) < self._pace.small and not self._is_behind
        self._flight.launch(self._fly(round_), group)

    async def _fly(self, round_: Round) -> None:
        self._settle(round_, await self._in_time(self._publish(round_)))

    async def _in_time(self, request: Awaitable[Answer]) -> Answer:
        try:
            async with asyncio.timeout(self._pace.patience):
                return await request
        except TimeoutError:
            raise BrokerAway(
                f"gave up: no acknowledgement from the broker within {self._pace.patience:g} s; "
                "what is not acknowledged will be shipped the next time"
            ) from None

    def _settle(self, round_: Round, sequence: int) -> None:
        self.positions = self.positions.advance([round_.origin], sequence)
        self.moved.set()
        fault("advanced")
        self._meter.acknowledged(round_)
        self._size = next_size(
            self._size, len(round_.payload), self._flight.age, self._pace.round_size
        )

    async def _land(self) -> None:
        while not await self._flight.land(self._pace.look_every):
            # files come and go, and deleted ones must be let go in time, although the broker is away
            await self._look_when_due()

    async def _wake_at_the_end(self) -> None:
        await self._stopping.wait()
        self._source.wake.set()

    async def _breathe(self) -> None:
        # what a trickle gathers while its last round flies is read only then, so that no block waits once it is read
        if self._trickles and self._ahead is None and not self._pace.once:
            await self._land()
            await self._pause(self._pace.breath - self._flight.age)

    async def _pause(self, seconds: float) -> None:
        if seconds > 0 and self._stopper is not None:
            await asyncio.wait({self._stopper}, timeout=seconds)

    async def _idle(self) -> None:
        if self._has_left_out:
            self._pass_over()
        most = self._looked + self._look_interval() - asyncio.get_running_loop().time()
        if self._source.is_waiting:
            most = min(most, self._pace.breath)
        await self._source.wait(min(most, self._source.patience))

    def _is_done(self, rounds: list[Round]) -> bool:
        return self._pace.once and (
            self._goals.are_met(self._source.states()) or not (rounds or self._source.is_waiting)
        )

    @property
    def _is_stopped(self) -> bool:
        return self._stopping.is_set()
