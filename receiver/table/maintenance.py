"""What keeps a table small and fast: merged files, days that end, files that nobody reads."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from nats_logship.app.faults import fault
from receiver.table.compact import Group, find_groups
from receiver.table.log import Log
from receiver.table.meter import TableMeter
from receiver.table.write import File

_EVERY = 60.0  # seconds
_VACUUM_EVERY = 3600.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Maintenance:
    """Maintains `lines`; `merge` merges groups of files in Spark tasks, so many at a time.

    Files are kept for `grace` after they were merged, lines for `keep` (0: for ever).
    """

    meter: TableMeter
    merge: Callable[[Sequence[Group]], Iterable[tuple[Group, File]]]
    tasks: int
    keep: timedelta
    grace: timedelta
    is_compacting: bool = True
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)  # noqa: TID251 - the default
    _due: float = 0.0
    _vacuum_due: float = 0.0

    async def run(self, lines: Log) -> None:
        """Do what is due; raises `Overtaken`, `TableTrouble`, `JobFailed`."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _EVERY  # if it fails, too
            await asyncio.to_thread(self._run, lines, self.clock())

    def _run(self, lines: Log, now: datetime) -> None:
        lines.refresh()
        self._remove_old_days(lines, now)
        left = self._compact(lines, now) if self.is_compacting else 0
        lines.checkpoint()
        if time.monotonic() >= self._vacuum_due:
            self._vacuum_due = time.monotonic() + _VACUUM_EVERY
            lines.vacuum(int(self.grace.total_seconds() // 3600))
        self.meter.files = len(lines.files())
        if left:
            self._due = 0.0

    def _remove_old_days(self, lines: Log, now: datetime) -> None:
        if not self.keep:
            return
        first = (now - self.keep).date()
        if old := [one for one in lines.files() if one.day < first]:
            lines.remove(old)
            logger.info("removed the lines of %d files from before %s", len(old), first)

    def _compact(self, lines: Log, now: datetime) -> int:
        """Merge some groups of files, and return how many are left for later."""
        groups = find_groups(lines.files(), now, lines.added)
        for group, merged in self.merge(groups[: self.tasks]) if groups else ():
            lines.exchange(group.files, [merged])
            fault("table_compacted")
            logger.info("merged %d files of %s", len(group.files), group.day)
        return max(0, len(groups) - self.tasks)
