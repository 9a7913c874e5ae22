"""What keeps a table small and fast: merged files, days that end, files that nobody reads."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from nats_logship.app.faults import fault
from receiver.table.compact import Group, find_groups
from receiver.table.log import Log
from receiver.table.meter import TableMeter
from receiver.table.parquet import File

_EVERY = 60.0  # seconds
_VACUUM_EVERY = 3600.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Maintenance:
    """Maintains tables; `merge` merges groups of files in Spark tasks, so many at a time.

    Files are kept for `grace` after they were merged, lines for `keep` (0: for ever).
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
            self._remove_old_days(log, now)
            log.checkpoint()
        try:
            for log in logs if self.is_compacting else ():
                if self._compact(log, now):
                    self._due = 0.0
        finally:  # files that cannot be merged do not keep others
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

    def _remove_old_days(self, log: Log, now: datetime) -> None:
        if not self.keep:
            return
        first = (now - self.keep).date()
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
