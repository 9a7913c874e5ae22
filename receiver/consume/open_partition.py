"""A partition that a task has the lock of: its store, its names, and what a batch of it is written with."""

from collections.abc import Mapping
from dataclasses import replace

from broker.wire.message import Followed
from broker.wire.offset import Offset
from receiver.consume.assignment import Assignment, Destination
from receiver.consume.offsets import nanoseconds
from receiver.storage import tables
from receiver.storage.folders import Folders
from receiver.storage.layout import Days, Layout
from receiver.storage.names import Names
from receiver.storage.output import Output
from receiver.storage.position import StoredBatch, first_undone
from receiver.storage.recovery import recover
from receiver.storage.rotation import Calendar
from receiver.storage.site import Site
from receiver.storage.store import UNKNOWN, Store, path_of
from receiver.storage.tables import Spans
from receiver.zones import named_zone

__all__ = ["OpenPartition"]


class OpenPartition:
    """The store and the folders of a partition, held against each other; to be closed."""

    def __init__(
        self,
        assignment: Assignment,
        destination: Destination,
        offset: Offset,
    ) -> None:
        """Open the store, and make it where nothing was received yet; raises OSError, `Damaged`."""
        number, template = assignment.partition, destination.path_template
        self.number = number
        self.site = Site(
            destination.output, destination.state, number, template, destination.partitions
        )
        self._destination = destination
        self._offset = offset
        zone = named_zone(destination.time_zone)
        self.layout = Layout(template)
        self.days = Days(zone, nanoseconds(offset.last_time))
        self.calendar = Calendar(destination.rotate_every, zone)
        self.store = self.site.open(offset.lines) or self._made()
        self._folders = Folders(destination.output)
        self.names = Names(
            self.store,
            self.layout,
            self.days,
            number,
            lambda path: self._folders.find(path) is not None,
            self.site.is_home_of,
        )
        self.spans = Spans(self.store)

    def _made(self) -> Store:
        store = Store(self.site.path, make=True)
        try:
            where, output = self._offset, self._destination.output.stat().st_ino
            begun = (where.epoch, where.next, where.next, where.stream, where.stream_created)
            with store.transaction():
                store.put_batch(StoredBatch(0, *begun, store.inode(), output))
        except BaseException:
            store.close()
            raise
        return store

    @property
    def last(self) -> StoredBatch:
        """The batch that was stored last."""
        batch = self.store.batch()
        assert batch is not None, "it was begun when it was opened"
        return batch

    def _first_undone(self) -> int:
        return first_undone(self.last, self._offset, self.number)

    @property
    def has_stored(self) -> bool:
        """Whether the batch that was stored last is to be taken back, for all that is known here; raises `Damaged`."""
        return self._first_undone() <= self.last.number

    def recover(self) -> None:
        """Make the files what the offset says they are; raises OSError, `Damaged`."""
        self._folders.look_again()
        recover(self.store, self._folders, self._first_undone(), self._offset)

    def recover_anew(self, reached: int) -> None:
        """Take a batch back that has failed, when all before `reached` was committed: by what is on disk of the store."""
        self._offset = replace(self._offset, next=reached, committed_in=0, moved_in=0)
        self.store.close()
        self.store = Store(self.site.path)
        self.recover()

    def unfinished(self) -> dict[str, tuple[str, str]]:
        """Return whose line is not finished at the end of live files: host and id of the source file."""
        rows = self.store.files("unfinished NOT NULL AND unfinished != ?", UNKNOWN)
        return {row.path: (row.host, str(row.unfinished)) for row in rows}

    def take_over(self, host: str, received: Mapping[Followed, int]) -> None:
        """Take over what other partitions have put aside of a host, and what nobody took of it here; raises OSError, `Damaged`.

        `received` is how far each of them has come. Where lines went to stores that are not here since the last of them came
        here, nobody knows how far its source files were received.
        """
        known = self.store.span(host, "")
        since = known.until if known else 0
        are_here = [
            self._take_over(host, *end) or end[0].sequence <= since for end in received.items()
        ]
        tables.take_back(self.store, host)
        if not all(are_here):
            tables.forget_spans(self.store, host)
        self.names.forget()
        self.spans = Spans(self.store)

    def _take_over(self, host: str, end: Followed, reached: int) -> bool:
        """Return whether the store of a partition is here, and all that was received of it in that."""
        try:
            with Store(path_of(self.site.state, end.partition)) as before:
                tables.take_over(self.store, before, host)
                batch = before.batch()
                return batch is not None and batch.until >= reached
        except FileNotFoundError:
            return not reached

    def writing(self) -> Output:
        """Open the output folder for a batch; raises OSError."""
        self._folders.look_again()
        destination = self._destination
        return Output(
            destination.output,
            self.store,
            self.names,
            destination.rotate_size,
            self.calendar,
            destination.permissions,
        )

    def close(self) -> None:
        """Let go of it."""
        self._folders.close()
        self.store.close()

    def __enter__(self) -> "OpenPartition":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
