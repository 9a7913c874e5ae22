"""The loop of a writer: rounds, and between them the maintenance of the table."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from nats_logship.app.exits import OperatorError
from nats_logship.app.faults import fault
from nats_logship.app.timestamps import EPOCH, Moment, format_datetime, to_datetime
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.config import require_layout
from nats_logship.client.connection import Connection
from nats_logship.client.find import find_message, find_sequence, resolve_moment
from nats_logship.client.stream_state import StreamState, get_stream_state
from nats_logship.wire.table_progress import StreamProgress
from receiver.driver.stopping import run_unless_stopped
from receiver.table.claim import TableClaim
from receiver.table.gaps import GapWriter, Row
from receiver.table.log import Log, Overtaken, TableTrouble
from receiver.table.maintenance import Maintenance
from receiver.table.meter import TableMeter
from receiver.table.parquet import File
from receiver.table.plan import (
    Range,
    Removed,
    cut_ranges,
    find_ends,
    find_start,
    transaction_name,
)
from receiver.table.write import Written

_POLL = 5.0  # seconds between questions about the streams and the table
_PAUSE = 5.0  # seconds after a failure
_RETRY = 60.0  # seconds until a round that failed is tried again, or the interval if it is shorter
_ATTEMPTS = 3  # with --once
_LOGGED = 10  # gaps of a round
_LAST = 1000  # messages of which one has lines, to compare it with the stream

logger = logging.getLogger(__name__)


class JobFailed(Exception):
    """Spark gave up on a job, with its reason; the next round does the same work again."""


_FAILURES = (Overtaken, TableTrouble, JobFailed, ConnectionLost, Rejected, OSError)


@dataclass(frozen=True, slots=True)
class TableLimits:
    """When rounds are due and how large they are: seconds, bytes of messages, Spark tasks."""

    every: float
    commit_bytes: int
    tasks: int


@dataclass(slots=True)
class _Plan:
    """What a round is to do; `starts` is by name and creation of each stream.

    `compared` are streams that lost their ends, by time of connection.
    """

    starts: dict[tuple[str, str], int] = field(default_factory=dict)
    unknown: bool = False
    removed: list[Removed] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    behind: dict[str, int] = field(default_factory=dict)
    waiting_bytes: int = 0
    compared: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class TableWriter:
    """Writes the streams of a broker to the tables `lines` and `gaps`.

    `run_tasks` reads ranges in Spark tasks; it raises `JobFailed`. A new table begins at `since`.
    """

    connection: Connection
    lines: Log
    gaps: Log
    claim: TableClaim
    meter: TableMeter
    maintenance: Maintenance
    run_tasks: Callable[[Sequence[Range]], Iterable[Written]]
    limits: TableLimits
    since: Moment
    _targets: dict[tuple[str, str], int] | None = None
    _due: float = 0.0
    _retry: float = 0.0  # when a round that failed may be tried again
    _compared: dict[str, float] = field(default_factory=dict)  # streams, by time of connection

    async def run(self, stop: asyncio.Event) -> None:
        """Write until a stop. Raises `FencedError`, OperatorError for a table that is in use."""
        while not stop.is_set():
            pause = _POLL
            try:
                if await self._work():
                    pause = 0.0
            except _FAILURES as error:
                pause = 0.0 if isinstance(error, Overtaken) else _PAUSE
                if not stop.is_set():
                    self._report(str(error))
            await run_unless_stopped(stop, asyncio.sleep(min(pause, self.limits.every)))
        await self._release()

    async def run_once(self, stop: asyncio.Event) -> None:
        """Write what the streams have now. Raises as `run`, and OperatorError if that fails."""
        failures = 0
        self._targets = {}
        while not stop.is_set():
            try:
                if not await self._work():
                    break
                failures = 0
            except _FAILURES as error:
                failures += 1
                if failures == _ATTEMPTS:
                    raise OperatorError(f"table {self.claim.address}: {error}") from None
                await run_unless_stopped(stop, asyncio.sleep(1.0))
        await self._release()
        logger.info("table %s: %s", self.claim.address, self.meter.describe_written())

    def _report(self, trouble: str) -> None:
        if trouble and trouble != self.meter.trouble:
            logger.warning("table %s: %s; tries again", self.claim.address, trouble)
        elif self.meter.trouble and not trouble:
            logger.info("table %s: written again", self.claim.address)
        self.meter.note_trouble(trouble)

    async def _work(self) -> bool:
        """Do a round if one is due; return whether another one is due at once."""
        plan = await self._plan()
        if not self.meter.started:
            await self._begin(plan)
        if plan.unknown and not plan.removed:  # now a restart begins at the same sequences
            ends = find_ends((), plan.starts)
            await asyncio.to_thread(self.lines.append, (), ends)
        await self._store(plan.starts, 0)
        is_full = plan.waiting_bytes >= self.limits.commit_bytes
        due = self._retry if is_full or plan.removed else self._due
        is_once = self._targets is not None
        is_worked = (plan.ranges or plan.removed) and (is_once or time.monotonic() >= due)
        if is_worked:
            # not at once after a failure: each attempt leaves files until they are vacuumed
            self._due = self._retry = time.monotonic() + min(self.limits.every, _RETRY)
            await self._round(plan)
            self._compared |= plan.compared
            self._due, self._retry = time.monotonic() + self.limits.every, 0.0
        if not self._retry:
            self._report("")
        await self.maintenance.run(self.lines, self.gaps)
        return bool(is_worked) and (is_full or is_once)

    async def _begin(self, plan: _Plan) -> None:
        """Claim the table; from here on retention keeps lines for it."""
        if not self.claim.table_id:
            await asyncio.to_thread(self.gaps.refresh)  # queries may name it from the start
            self.claim.table_id = self.lines.table_id
            try:
                await self.claim.claim()
            except BaseException:
                self.claim.table_id = ""
                raise
        self.meter.started = self.meter.clock()
        logger.info("writing table %s", self.claim.address)

    async def _plan(self) -> _Plan:
        await asyncio.to_thread(self.lines.refresh)
        layout = await require_layout(self.connection)
        plan, is_new = _Plan(), self.lines.version == 0
        for name in layout.names:
            state = await get_stream_state(self.connection, name)
            moment = self.since if is_new else state.first
            beginning = await resolve_moment(self.connection, moment, state)
            known = await self._cut_lost_end(state, plan)
            start = find_start(known, self.lines.transaction, beginning)
            key, own = (name, state.created), transaction_name(name, state.created)
            plan.unknown |= self.lines.transaction(own) is None
            plan.removed += start.removed
            self._add_ranges(plan, self._cap(state), start.first)
            plan.starts[key] = start.first
        self.meter.note_plan(plan.behind)
        return plan

    async def _cut_lost_end(self, state: StreamState, plan: _Plan) -> StreamState:
        """Return the state that a stream had when it lost its end, though it has grown since.

        Then it has other messages at sequences that are written, from the first that differs on.
        If those before it were stored later than they, they are older copies, and all is written.
        Only a broker that was restarted has lost anything, so each connection is checked once.
        """
        end = self.lines.transaction(transaction_name(state.name, state.created))
        connected_at = self.connection.connected_at
        is_compared = self._compared.get(state.key) == connected_at
        if is_compared or end is None or end > state.until:
            return state
        last = [("sequence", ">=", max(state.first, end - _LAST)), ("sequence", "<", end)]
        where = [("stream", "=", state.key), *last, ("pos", "=", 0)]
        written = defaultdict[int, set[datetime]](set)
        for row in await asyncio.to_thread(self.lines.read, ("sequence", "time"), where):
            written[row["sequence"]].add(row["time"])
        lost, lost_at = 0, EPOCH
        for sequence, times in sorted(written.items(), reverse=True):
            found = await find_message(self.connection, state.name, {"seq": sequence})
            if found and (stored_at := to_datetime(found.stored_at)) in times:
                if stored_at > lost_at:
                    break
                plan.compared[state.key] = connected_at
                return replace(state, until=sequence + 1)
            if found:
                lost, lost_at = sequence, max(lost_at, *times)
        else:
            if lost:
                plan.compared[state.key] = connected_at
                after = lost_at + timedelta(microseconds=1)
                first = await find_sequence(self.connection, state.name, after)
                return replace(state, until=min(first or lost, lost))
        self._compared[state.key] = connected_at
        return state

    def _cap(self, state: StreamState) -> StreamState:
        """Return the state with the end that the stream had at first, with --once."""
        if self._targets is None:
            return state
        end = self._targets.setdefault((state.name, state.created), state.until)
        return replace(state, until=min(end, state.until))

    def _add_ranges(self, plan: _Plan, state: StreamState, first: int) -> None:
        plan.ranges += cut_ranges(state, first, self.limits.commit_bytes, self.limits.tasks)
        plan.behind[state.name] = waiting = max(0, state.until - first)
        plan.waiting_bytes += waiting * (state.size // max(1, state.messages))

    async def _round(self, plan: _Plan) -> None:
        """Read the ranges, and commit gaps, lines and progress; all or nothing of it counts."""
        began = time.monotonic()
        await asyncio.to_thread(self.gaps.refresh)
        ranges = [replace(one, reported=self._reported(one)) for one in plan.ranges]
        written = list(await asyncio.to_thread(self.run_tasks, ranges)) if ranges else []
        ends = find_ends(ranges, plan.starts)
        await asyncio.to_thread(self._write_gaps, plan.removed, written, ends)
        files = [one for found in written for one in found.files]
        rows = sum(one.rows for one in files)
        await asyncio.to_thread(self.lines.append, files, ends)
        fault("table_stored")
        size = sum(one.line_bytes for one in written)
        self.meter.note_round(rows, size, time.monotonic() - began)
        streams = {key: ends[transaction_name(*key)] for key in plan.starts}
        await self._store(streams, rows)

    def _reported(self, one: Range) -> int:
        return self.gaps.transaction(transaction_name(one.stream, one.created)) or 0

    def _write_gaps(
        self, removed: Sequence[Removed], written: Iterable[Written], ends: dict[str, int]
    ) -> None:
        """Commit what is missing before the lines, with how far unreadable messages are in it."""
        files, rows = list[File](), list[Row]()
        for one in self._leave_out_known(removed):
            writer = GapWriter(self.gaps.location, one.stream)
            writer.add_removed(one.first, one.until, one.reason)
            writer.flush()
            files, rows = files + writer.files, rows + writer.shown
        for found in written:
            files, rows = [*files, *found.gaps], [*rows, *found.missing]
        if files:
            _log_gaps(rows, sum(one.rows for one in files))
            self.gaps.append(files, ends)
            fault("table_gaps")
            self.meter.gaps += sum(one.rows for one in files)

    def _leave_out_known(self, removed: Sequence[Removed]) -> Iterable[Removed]:
        """Return what has no row in `gaps` yet: a round that failed has left one."""
        if not removed:
            return ()
        firsts = [("kind", "=", "removed"), ("first", "in", [one.first for one in removed])]
        known = self.gaps.read(["stream", "first", "until"], firsts)
        keys = [(row["stream"], row["first"], row["until"]) for row in known]
        return [one for one in removed if (one.stream, one.first, one.until) not in keys]

    async def _store(self, streams: dict[tuple[str, str], int], rows: int) -> None:
        """Write progress that the entry does not have, also if an earlier answer was lost."""
        found = {name: StreamProgress(created, at) for (name, created), at in streams.items()}
        if found == self.claim.progress.streams:
            return
        now = format_datetime(datetime.now(UTC), "milliseconds")  # noqa: TID251 - shown to people
        self.meter.files = len(await asyncio.to_thread(self.lines.files))
        await self.claim.store(found, rows=rows, files=self.meter.files, now=now)

    async def _release(self) -> None:
        if self.meter.started:
            with suppress(ConnectionLost, Rejected, OperatorError):
                await self.claim.release()


def _log_gaps(rows: Sequence[Row], count: int) -> None:
    for row in rows[:_LOGGED]:
        logger.warning(
            "gap in stream %s: sequences %d to %d, %s: %s",
            row["stream"],
            row["first"],
            row["until"] - 1,
            row["kind"],
            row["reason"],
        )
    if count > _LOGGED:
        logger.warning("%d more gaps are in the table gaps", count - _LOGGED)
