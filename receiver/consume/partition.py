"""A partition that a task has locked: its store, its folders, and what the store knows.

A session opens it once, recovers it, and writes one batch after the other through it (`batch`).
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from secrets import token_hex

from nats_logship.wire.endings import OpenLine
from nats_logship.wire.message import Followed
from nats_logship.wire.offset import Offset
from receiver.consume.assignment import Assignment, Destination
from receiver.consume.host_claims import ReceivedEnd
from receiver.storage import tables
from receiver.storage.folders import Folders
from receiver.storage.layout import Days, Layout
from receiver.storage.names import Names
from receiver.storage.output import Output
from receiver.storage.quarantine import Quarantine
from receiver.storage.rotation import Calendar, named_zone
from receiver.storage.site import Site, first_undone, recover, settled
from receiver.storage.store import NOT_CLOSED, UNKNOWN, Store, StoredBatch, path_of
from receiver.storage.tables import Spans


class OpenPartition:
    """The store and the folders of one partition; to be closed."""

    def __init__(self, assignment: Assignment, destination: Destination, offset: Offset) -> None:
        """Open the store; make it if nothing was received here yet. Raises OSError, `Damaged`."""
        self._assignment = assignment
        self._destination = destination
        self._offset = offset
        self.site = Site(
            destination.output,
            destination.state,
            assignment.partition,
            destination.path_template,
            destination.partitions,
        )
        zone = named_zone(destination.time_zone)
        self.layout = Layout(destination.path_template)
        self.days = Days(zone, offset.stored_at)
        self.calendar = Calendar(destination.rotate_every, zone)
        self.store = self.site.open(offset.lines) or self._make_store()
        self._folders = Folders(destination.output, destination.permissions)
        self.names = Names(
            self.store,
            self.layout,
            self.days,
            assignment.partition,
            partial(self._folders.is_taken, tangled=self.layout.has_file),
            self.site.is_home_of,
        )
        self.spans = Spans(self.store)
        self._today = ""  # files of earlier days are closed
        self._period_begin = -1  # files whose last line is older than this period are closed

    def _make_store(self) -> Store:
        with closing(Store(self.site.path, make=True)) as store, store.transaction():
            inode = self._destination.output.stat().st_ino
            template = self.site.template
            store.put_batch(settled(0, self._offset, store.inode(), inode, template))
        return Store(self.site.path)

    @property
    def last_batch(self) -> StoredBatch:
        """The batch that was stored last."""
        batch = self.store.batch()
        assert batch is not None, "the store has a batch since it was opened"
        return batch

    def describe_batch(self, first: int, until: int) -> StoredBatch:
        """Return the row of the next batch, `[first, until)`, as step 4 of a batch stores it."""
        last = self.last_batch
        return last._replace(
            number=last.number + 1,
            epoch=self._assignment.epoch,
            first=first,
            until=until,
            commit_id=token_hex(8) if first < until else last.commit_id,
            previous_id=last.commit_id,
        )

    def _first_undone(self) -> int:
        return first_undone(self.last_batch, self._offset, self._assignment.partition)

    @property
    def has_uncommitted(self) -> bool:
        """Whether the last stored batch is not committed, by the offset that was read.

        Raises `Damaged` if the store and the offset contradict each other.
        """
        return self._first_undone() <= self.last_batch.number

    def recover(self) -> list[str]:
        """Undo what is not committed; return notices. Raises OSError, `Damaged`."""
        since, template = self._first_undone(), self.site.template
        return recover(self.store, self._folders, since, self._offset, template)

    def open_line(self, live: str) -> OpenLine | None:
        """Return the unfinished line at the end of a live file, None if there is none."""
        row = self.store.file(live)
        if row is None or row.unfinished in {None, UNKNOWN}:
            return None
        return OpenLine.parse(row.host, str(row.unfinished))

    @cached_property
    def quarantine(self) -> Quarantine:
        """Where messages go that cannot be read as lines; not to be used before `recover`."""
        return Quarantine(self.site.output, self._assignment.partition, self.last_batch.created)

    def take_over(self, host: str, ends: Iterable[ReceivedEnd]) -> None:
        """Take over a host's files from the stores of its former partitions.

        Files of the host that this store had put aside, and nobody took over, are this partition's
        again. If a former partition's store is on another machine, it is unknown how far the host's
        source files were received: the host's spans are forgotten. Raises OSError, `Damaged`.
        """
        since = (self.store.span(host, "") or (0, 0))[0]
        are_known = [
            (one.reached is not None and self._take_files(host, one.end, one.reached))
            or one.end.sequence <= since
            for one in ends
        ]
        with self.store.transaction():
            self.store.return_files(host)
            if not all(are_known):
                self.store.forget_spans(host)
        self.names.forget()
        self.spans = Spans(self.store)

    def _take_files(self, host: str, end: Followed, reached: int) -> bool:
        """Take files from a partition's store; return whether it has all up to `reached`."""
        try:
            with Store(path_of(self.site.state, end.partition)) as former:
                tables.take_over(self.store, former, host)
                batch = former.batch()
                return batch is not None and batch.until >= reached
        except FileNotFoundError:
            return not reached

    def close_finished(self, output: Output, moment: int) -> None:
        """Close the files of days and periods that were over at `moment`, in nanoseconds.

        Called with the time of a batch's first message: all earlier lines are committed then.
        Raises OSError.
        """
        self.close_days(output, moment)
        begin = self.calendar.period(moment).begin
        if begin != self._period_begin:
            self.close_files(output, begin)
            self._period_begin = begin

    def close_days(self, output: Output, moment: int) -> None:
        """Close the files of days before `moment`, once for each day; raises OSError."""
        if self.layout.has_date and (today := self.days.date(moment)) != self._today:
            output.close_days(today)
            self._today = today

    def close_files(self, output: Output, before: int) -> None:
        """Close live files whose last line was stored before a moment; raises OSError."""
        where = "host != '' AND length > 0"
        if self.layout.has_date:
            where += f" AND {NOT_CLOSED}"
        rows = self.store.files(f"{where} AND last_line < ?", before)
        output.close_files(row.path for row in rows)

    def open_output(self) -> Output:
        """Open the output folder for the next batch; the last one is committed. Raises OSError."""
        last = self.last_batch
        self._offset = replace(self._offset, next=last.until, commit=last.commit_id)
        size = self._destination.rotate_size
        return Output(self._folders, self.store, self.names, size, self.calendar)

    def close(self) -> None:
        """Close the folders and the store."""
        self._folders.close()
        self.store.close()
