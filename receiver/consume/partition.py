"""A partition that a task has locked: its store, its folders, and what the store knows.

A session opens it once, recovers it, and writes one batch after the other through it (`batch`).
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from secrets import token_hex

from nats_logship.wire.endings import OpenLine
from nats_logship.wire.message import Followed
from nats_logship.wire.offset import Offset
from receiver.consume.assignment import Assignment, Destination
from receiver.consume.host_claims import ReceivedEnd
from receiver.storage.folders import Folders
from receiver.storage.layout import Days, Layout
from receiver.storage.live_paths import LivePaths
from receiver.storage.output import Output
from receiver.storage.partition_folders import PartitionFolders
from receiver.storage.quarantine import Quarantine
from receiver.storage.recovery import find_first_to_undo, make_empty_batch, recover
from receiver.storage.rotation import Calendar, load_zone
from receiver.storage.rows import UNKNOWN, StoredBatch, inode_of
from receiver.storage.spans import StoredSpanEnds, take_over_files
from receiver.storage.store import Store, make_store_path
from receiver.storage.surplus import Surplus


def make_partition_folders(destination: Destination, partition: int) -> PartitionFolders:
    """Return where a partition is received to."""
    return PartitionFolders(
        output=destination.output,
        state=destination.state,
        partition=partition,
        template=destination.path_template,
        partitions=destination.partitions,
        broker=destination.broker,
    )


class OpenPartition:
    """The store and the folders of one partition; to be closed."""

    def __init__(self, assignment: Assignment, destination: Destination, offset: Offset) -> None:
        """Open the store; make it if nothing was received here yet. Raises OSError, `Damaged`."""
        self._assignment = assignment
        self._destination = destination
        self._offset = offset
        self.partition_folders = make_partition_folders(destination, assignment.partition)
        zone = load_zone(destination.time_zone)
        self.layout = Layout(destination.path_template)
        self.days = Days(zone, offset.stored_at)
        self.calendar = Calendar(destination.rotate_every, zone)
        self.store = self.partition_folders.open_store(offset.lines) or self._make_store()
        self._folders = Folders(destination.output, destination.permissions)
        self.names = LivePaths(
            self.store,
            self.layout,
            self.days,
            assignment.partition,
            self._folders.is_occupied if self.layout.has_file else self._folders.has_file,
            self.partition_folders.is_home_of,
        )
        self.spans = StoredSpanEnds(self.store)
        self._surplus = Surplus()
        self._today = ""  # files of earlier days are closed
        self._period_begin = -1  # files whose last line is older than this period are closed

    def _make_store(self) -> Store:
        path, template = self.partition_folders.store_path, self.partition_folders.template
        with closing(Store.create(path)) as store, store.transaction():
            inode = inode_of(self._destination.output.stat())
            store.put_batch(make_empty_batch(0, self._offset, store.inode, inode, template))
        return Store(path)

    @property
    def last_batch(self) -> StoredBatch:
        """The batch that was stored last."""
        batch = self.store.read_batch()
        assert batch is not None, "the store has a batch since it was opened"
        return batch

    def describe_batch(self, first: int, until: int) -> StoredBatch:
        """Return the row of the next batch, `[first, until)`, as step 3 of a batch stores it."""
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
        return find_first_to_undo(self.last_batch, self._offset, self._assignment.partition)

    @property
    def has_uncommitted(self) -> bool:
        """Whether the last stored batch is not committed, by the offset that was read.

        Raises `Damaged` if the store and the offset contradict each other.
        """
        return self._first_undone() <= self.last_batch.number

    def recover(self) -> list[str]:
        """Undo what is not committed; return notices. Raises OSError, `Damaged`.

        Bytes behind the committed lengths stay: the next batches have their lines.
        """
        since, template = self._first_undone(), self.partition_folders.template
        self._surplus = recover(self.store, self._folders, since, self._offset, template)
        return self._surplus.take_notices()

    @property
    def has_surplus(self) -> bool:
        """Whether a file has bytes behind its committed length that may be received again."""
        return bool(self._surplus.ends)

    def settle_surplus(self, until: int, end: int) -> list[str]:
        """Cut the bytes that nothing fills, after a commit up to `until`; return notices.

        Does nothing before the `end` that the stream had when the session began: a message before
        that may be the one that a killed task has written. Raises OSError.
        """
        return self.cut_surplus() if until >= end else []

    def cut_surplus(self) -> list[str]:
        """Do that at once, when nothing waits in the stream; raises OSError."""
        self._surplus.cut_rest(self.store, self._folders)
        return self._surplus.take_notices()

    def open_line(self, live: str) -> OpenLine | None:
        """Return the unfinished line at the end of a live file, None if there is none."""
        row = self.store.find_file(live)
        if row is None or row.unfinished in {None, UNKNOWN}:
            return None
        return OpenLine.parse(row.host, str(row.unfinished))

    @cached_property
    def quarantine(self) -> Quarantine:
        """Where messages go that cannot be read as lines; not to be used before `recover`."""
        return Quarantine(
            self.partition_folders.output, self._assignment.partition, self.last_batch.created
        )

    def take_over(self, host: str, ends: Iterable[ReceivedEnd]) -> None:
        """Take over a host's files from the stores of its former partitions.

        Files of the host that this store had put aside, and nobody took over, are this partition's
        again. If a former partition's store is on another machine, it is unknown how far the host's
        source files were received: the host's spans are forgotten. Raises OSError, `Damaged`.
        """
        received, _ = self.store.find_span(host, "") or (0, 0)  # the host's last message here
        are_known = [
            (one.reached is not None and self._take_files(host, one.end, one.reached))
            or one.end.sequence <= received
            for one in ends
        ]
        with self.store.transaction():
            self.store.return_files(host)
            if not all(are_known):
                self.store.forget_spans(host)
        self.names.clear_cache()
        self.spans = StoredSpanEnds(self.store)

    def _take_files(self, host: str, end: Followed, reached: int) -> bool:
        """Take files from a partition's store; return whether it has all up to `reached`."""
        try:
            with Store(make_store_path(self.partition_folders.state, end.partition)) as former:
                take_over_files(self.store, former, host)
                batch = former.read_batch()
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
            # later batches close the files that have a surplus now
            self._period_begin = -1 if self.has_surplus else begin

    def close_days(self, output: Output, moment: int) -> None:
        """Close the files of days before `moment`, once for each day; raises OSError."""
        if self.layout.has_date and (today := self.days.date(moment)) != self._today:
            output.close_days(today)
            self._today = "" if self.has_surplus else today

    def close_files(self, output: Output, before: int) -> None:
        """Close live files whose last line was stored before a moment; raises OSError."""
        rows = self.store.list_files_silent_since(before)
        output.close_files(row.path for row in rows)

    def open_output(self) -> Output:
        """Open the output folder for the next batch; the last one is committed. Raises OSError."""
        self.store.refresh()
        last = self.last_batch
        self._offset = replace(self._offset, next=last.until, commit=last.commit_id)
        size = self._destination.rotate_size
        return Output(self._folders, self.store, self.names, size, self.calendar, self._surplus)

    def close(self) -> None:
        """Close the folders and the store."""
        self._folders.close()
        self.store.close()
