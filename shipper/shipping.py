"""The loop of an agent: gathers a round while the one before is in in_flight, and moves the positions with its ack.

Never more than one round in in_flight, one in hand and, behind a backlog, one read ahead, so a broker that is away costs
neither memory nor lines: the source files wait.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from broker.app.exits import OperatorError
from broker.app.faults import fault
from broker.client.connection import BrokerAway
from shipper.line_filter import LineFilter, Rules
from shipper.positions import Positions
from shipper.publish.rounds import FIRST_SIZE, Round, cut, make, next_size
from shipper.settings import Compression
from shipper.status.meter import Meter
from shipper.tail.follower import Follower
from shipper.tail.notices import Notice, announce
from shipper.tail.paths import Selection
from shipper.tail.reader import Block
from shipper.tail.scan import scan
from shipper.tail.tailer import FileState

__all__ = [
    "Goals",
    "InFlight",
    "Pace",
    "Schedule",
    "Shipping",
    "conclude",
    "require_files",
    "schedule",
]


@dataclass(frozen=True, slots=True)
class Pace:
    """How the loop breathes; lengths in seconds, sizes in bytes.

    `look_after` is how soon after the last look another one may follow when files came or went, `look_every` and
    `look_at_least_every` bound how often to look anyway. After a round of less than `small` bytes nothing is read until
    `breath` after its start, so that a busy log makes ten rounds in a second, not a thousand. `patience` bounds one
    round with `once`. `rules` say which lines are left out.
    """

    round_size: int
    compression: Compression
    once: bool
    patience: float | None
    look_after: float = 0.2
    look_every: float = 5.0
    look_at_least_every: float = 60.0
    breath: float = 0.1
    small: int = 128 * 1024
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How many seconds after a look the next one comes."""

    when_called: float
    when_unsettled: float
    anyway: float


def schedule(pace: Pace, took: float) -> Schedule:
    """Return when to look again after a look that took so many seconds: looks take a tenth of the time at most.

    While a file waits for its end they take a fiftieth, and a five hundredth when nothing calls for them.
    """
    soon = max(pace.look_every, 50 * took)
    rarely = max(soon, min(pace.look_at_least_every, 500 * took))
    return Schedule(max(pace.look_after, 10 * took), soon, rarely)


class InFlight:
    """A task at most; times are those of the loop, in seconds."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._launched = float("-inf")

    @property
    def has_begun(self) -> bool:
        """Whether a round was launched whose landing nobody has seen."""
        return self._task is not None

    @property
    def is_under_way(self) -> bool:
        """Whether a round has been sent and not been acknowledged."""
        return self._task is not None and not self._task.done()

    @property
    def age(self) -> float:
        """Seconds since the last launch; infinite before the first."""
        return asyncio.get_running_loop().time() - self._launched

    def launch(self, sending: Coroutine[None, None, None], group: asyncio.TaskGroup) -> None:
        """Send a round as a task of `group`; the one before must have landed."""
        self._launched = asyncio.get_running_loop().time()
        self._task = group.create_task(sending)

    async def land(self, timeout: float) -> bool:  # noqa: ASYNC109 - running out of it is no error here
        """Return whether nothing is on its way, after `timeout` seconds at most; raises what went wrong with it."""
        if (task := self._task) is None:
            return True
        done, _ = await asyncio.wait({task}, timeout=timeout)
        if done:
            self._task = None
            await task
        return bool(done)


_LOOKS = 5
_ROTATING = 0.5  # seconds in which a file that is renamed is made anew
_AGAIN = "start it again to go on"
logger = logging.getLogger(__name__)


class Goals:
    """The ends of the files as they were first seen, by id; `looks_left` are those for what moves while it is read."""

    def __init__(self) -> None:
        """Begin with nothing to reach."""
        self.looks_left = _LOOKS
        self._ends: dict[str, int] = {}

    def aim(self, states: Iterable[FileState]) -> None:
        """Take up files that have no goal yet."""
        self._ends = {state.file: state.size for state in states} | self._ends

    def are_met(self, states: Iterable[FileState]) -> bool:
        """Whether all files have been read as far."""
        return all(state.offset >= self._ends.get(state.file, 0) for state in states)

    def missed(self, states: Iterable[FileState]) -> list[FileState]:
        """Return the files of which more than an unfinished last line is left."""
        return [s for s in states if s.offset + s.held < self._ends.get(s.file, 0)]


def require_files(selection: Selection, patience: float = _ROTATING) -> None:
    """Return when there is a file to read for each pattern; blocks, for `patience` seconds where there is none at first.

    Raises `OperatorError` for a pattern without one. Touches nothing.
    """
    if any(_lacks(selection, pattern) for pattern in selection.patterns):
        time.sleep(patience)
    for pattern in selection.patterns:
        if lack := _lacks(selection, pattern):
            raise OperatorError(f"{lack}; nothing was shipped; check --file")


def _lacks(selection: Selection, pattern: str) -> str:
    """Return why there is nothing to read for a pattern; empty where there is."""
    shown = scan(replace(selection, patterns=(pattern,)), ())
    standing = [entry.path for entry in shown.entries if entry.is_live]
    if any(os.access(path, os.R_OK) for path in standing):
        return ""
    if standing:
        return f"{standing[0]}: may not be read"
    return next((f"{trouble.path}: {trouble.text}" for trouble in shown.troubles), "")


def conclude(source: Follower, goals: Goals) -> None:
    """Say what is held back at the end of `once`; raises `OperatorError` when files cannot be read, or were not."""
    for state in source.states():
        if state.held:
            logger.info("%s: %d bytes of an unfinished last line held", state.path, state.held)
    if troubles := {notice.path: notice for notice in source.troubles()}:
        first = next(iter(troubles.values()))
        more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
        raise OperatorError(f"{first.path}: {first.text}{more}; check --file")
    for state in () if goals.looks_left else goals.missed(source.states()):
        raise OperatorError(f"{state.path}: was moved again and again, and is not read; {_AGAIN}")
    if not source.is_oriented:
        raise OperatorError(f"files were rotated again and again, and are not read; {_AGAIN}")


Answer = TypeVar("Answer")
Save = Callable[[Positions], Awaitable[None]]


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
        self._line_filter = LineFilter(pace.rules, positions.files.values())
        self._stopping = stopping
        self._stopper: asyncio.Task[None] | None = None
        self._save: Save | None = None
        self._has_found = False
        self._in_flight = InFlight()
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
        self._line_filter.change(pace.rules)

    @property
    def is_in_flight(self) -> bool:
        """Whether a round has been sent and not been acknowledged."""
        return self._in_flight.is_under_way

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
            if not rounds and self._in_flight.has_begun:
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
        if not self._line_filter.is_idle:
            self.positions = self.positions.passed(self._line_filter.passed())
            self._line_filter.keep({*self.positions.files, *self.following()})
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
            if not self._line_filter.is_idle:
                read, blocks = blocks, await asyncio.to_thread(self._line_filter.sift, blocks)
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
        self._in_flight.launch(self._fly(round_), group)

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
            self._size, len(round_.payload), self._in_flight.age, self._pace.round_size
        )

    async def _land(self) -> None:
        while not await self._in_flight.land(self._pace.look_every):
            # files come and go, and deleted ones must be let go in time, although the broker is away
            await self._look_when_due()

    async def _wake_at_the_end(self) -> None:
        await self._stopping.wait()
        self._source.wake.set()

    async def _breathe(self) -> None:
        # what a trickle gathers while its last round flies is read only then, so that no block waits once it is read
        if self._trickles and self._ahead is None and not self._pace.once:
            await self._land()
            await self._pause(self._pace.breath - self._in_flight.age)

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
