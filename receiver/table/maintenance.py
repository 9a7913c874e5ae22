"""What keeps a table small and fast: merged files, days that end, files that nobody reads."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from nats_logship.app.faults import fault
from receiver.table.compact import Group, find_groups
from receiver.table.log import Log
from receiver.table.meter import TableMeter
from receiver.table.parquet import File

_EVERY = 60.0  # seconds
_VACUUM_EVERY = 3600.0
_MOST_AHEAD = timedelta(days=2)  # of the newest line's day: a clock beyond that may be wrong
_NO_DAY = date(1970, 1, 1)  # of a table without lines: nothing is too old

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Maintenance:
    """Maintains tables; `merge` merges groups of files in Spark tasks, so many at a time.

    Files are kept for `grace` after they were merged, lines for `keep` (0: for ever). After a boot
    the clock may be years ahead, so `keep` counts back from the newest day of `lines`, if that is
    earlier. The broker's clock may be as wrong, so a day far ahead of the others is not counted
    from before the next one. delta-rs measures age by the machine's clock: while that is far ahead
    of the newest day, neither old versions nor old files are deleted.
    """

    meter: TableMeter
    merge: Callable[[Sequence[Group]], Iterable[tuple[Group, File | str]]]
    tasks: int
    keep: timedelta
    grace: timedelta
    is_compacting: bool = True
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)  # noqa: TID251 - the default
    _due: float = 0.0
    _vacuum_due: float = 0.0
    _aside: set[str] = field(default_factory=set)  # damaged; they are tried again each hour

    async def run(self, *logs: Log) -> None:
        """Do what is due, of `lines` first; raises `Overtaken`, `TableTrouble`, `JobFailed`."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _EVERY  # if it fails, too
            await asyncio.to_thread(self._run, logs, self.clock())

    def _run(self, logs: Sequence[Log], now: datetime) -> None:
        for log in logs:
            log.refresh()
        days = sorted({one.day for one in logs[0].files()})
        before, newest = [_NO_DAY, _NO_DAY, *days][-2:]
        is_ahead = now.date() - newest > _MOST_AHEAD
        if before != _NO_DAY and newest - before > _MOST_AHEAD:
            newest = before
        for log in logs:
            self._remove_old_days(log, min(now.date(), newest))
            if log.checkpoint() and not is_ahead:
                log.remove_old_versions()
        try:
            for log in logs if self.is_compacting else ():
                if self._compact(log, now):
                    self._due = 0.0
        finally:  # files that cannot be merged do not keep others
            # only rounds that fail leave files in a table that gets no lines
            if not is_ahead or self.meter.trouble:
                self._vacuum(logs)
        self.meter.files = len(logs[0].files())

    def _vacuum(self, logs: Sequence[Log]) -> None:
        if time.monotonic() < self._vacuum_due:
            return
        self._vacuum_due = time.monotonic() + _VACUUM_EVERY
        self._aside = set()
        for log in logs:
            log.refresh()  # a merge that failed has forgotten what was read
            log.vacuum(-(-int(self.grace.total_seconds()) // 3600))

    def _remove_old_days(self, log: Log, today: date) -> None:
        if not self.keep:
            return
        first = today - self.keep
        if old := [one for one in log.files() if one.day < first]:
            log.remove(old)
            logger.info("removed %d files of %s from before %s", len(old), log.own.name, first)

    def _compact(self, log: Log, now: datetime) -> int:
        """Merge some groups of files, and return how many are left for later."""
        files = (one for one in log.files() if one.path not in self._aside)
        groups = [Group(one, log.location, log.form) for one in find_groups(files, now)]
        for group, merged in self.merge(groups[: self.tasks]) if groups else ():
            count, day = len(group.files), group.files[0].day
            if isinstance(merged, str):
                logger.warning("%d files of %s cannot be merged: %s", count, day, merged)
                self._aside |= {one.path for one in group.files}
                continue
            log.exchange(group.files, [merged])
            fault("table_compacted")
            logger.info("merged %d files of %s", count, day)
        return max(0, len(groups) - self.tasks)
