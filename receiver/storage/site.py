"""The two folders of a partition on this machine: whether store and files belong together, and files adopted as they are."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from broker.wire.offset import Offset
from broker.wire.subjects import partition_of
from receiver.storage.folders import Folders, make_folder, walk
from receiver.storage.layout import DEFAULT, Layout
from receiver.storage.position import Damaged, StoredBatch
from receiver.storage.rotation import (
    closed_segments,
    highest_numbers,
    is_closed,
    live_of,
    plain_name,
)
from receiver.storage.store import UNKNOWN, FileRow, SegmentRow, Store, path_of
from receiver.storage.tables import gap_report

__all__ = [
    "Site",
    "adopt",
]


@dataclass(frozen=True, slots=True)
class Site:
    """Where a partition is received to. `partitions` is how many there are, 0 where that is not known."""

    output: Path
    state: Path
    partition: int
    template: str = DEFAULT
    partitions: int = 0

    @property
    def path(self) -> Path:
        """Where the store is."""
        return path_of(self.state, self.partition)

    def is_home_of(self, host: str) -> bool:
        """Whether the lines of a host belong to this partition."""
        return not self.partitions or partition_of(host, self.partitions) == self.partition

    def last_batch(self, lines: int) -> StoredBatch | None:
        """Return the batch that was stored last; raises and returns None as `open` does."""
        store = self.open(lines)
        if store is None:
            return None
        with store:
            return store.batch()

    def open(self, lines: int) -> Store | None:
        """Open the store, or return None where nothing was received to here yet; `lines` were received anywhere.

        Raises `Damaged` where store and files do not belong together, and OSError.
        """
        make_folder(self.output)
        make_folder(self.state)
        try:
            with ExitStack() as stack:
                store = stack.enter_context(Store(self.path))
                if batch := store.batch():
                    store.check_lengths()
                    self._check(store, batch)
                    stack.pop_all()
                    return store
        except Damaged as error:
            raise Damaged(f"{error}; bring it back, {self._way_out()}") from None
        except FileNotFoundError:
            pass  # that's fine: it is asked of the files whether there was one
        if lines and (found := next(self.files(), None)):
            raise Damaged(
                f"{self.path} is gone, but {self.output} holds files of partition {self.partition}, such as {found}: "
                f"give the right --state-dir, bring it back, {self._way_out()}"
            )
        return None

    def _check(self, store: Store, batch: StoredBatch) -> None:
        """Raise `Damaged` where none of the files is in another folder than the one that the store was last used with."""
        if batch.output_inode in {0, self.output.stat().st_ino}:
            return
        known = store.files("length > 0")
        if known and not any((self.output / row.path).is_file() for row in known):
            raise Damaged(
                f"none of the {len(known)} files that {self.path} names is in {self.output}: is its disk mounted? Mount it, "
                f"or give the right --output"
            )

    def _way_out(self) -> str:
        return f"or, if it is lost, `logreceiver offsets adopt --partition {self.partition}` takes the files as they are"

    def files(self) -> Iterator[str]:
        """Yield the files below the output folder that must be this partition's, live and closed; raises OSError."""
        layout, others = Layout(self.template), self._known_to_others()
        for path in walk(self.output):
            live = live_of(path)
            host = layout.host_of(live)
            if host and live not in others and self._is_own(host, live, layout):
                yield path

    def _is_own(self, host: str, live: str, layout: Layout) -> bool:
        if mark := layout.mark_of(live):
            return mark == f"..p{self.partition}"
        return self.is_home_of(host)

    def _known_to_others(self) -> set[str]:
        known: set[str] = set()
        for path in self.state.glob("p*.db"):
            if path != self.path:
                with suppress(OSError, Damaged), Store(path) as store:
                    known.update(
                        str(row[0])
                        for row in store.rows("SELECT path FROM files WHERE left_in = 0")
                    )
        return known


def adopt(site: Site, offset: Offset) -> int:
    """Have the store of a partition say that its files are committed as they are; return how many live ones there are.

    To be called under the partition's lock. Gaps and spans stay where they can be read; a store that cannot be read is
    put aside. Raises OSError.
    """
    make_folder(site.output)
    make_folder(site.state)
    ours = set(site.files())
    with _readable(site) as store, closing(Folders(site.output)) as folders:
        known = {row.path: row for row in store.files("TRUE")}
        ours |= {path for path in {*known, gap_report(site.partition)} if folders.find(path)}
        lives = sorted(path for path in ours if not is_closed(path))
        numbers = highest_numbers(ours)
        rows = [
            _row(known.get(path) or _unknown(path, site), numbers.get(path, 0), folders)
            for path in lives
        ]
        segments = [_segment(path, folders, site) for path in ours.difference(lives)]
        batch = store.batch() or StoredBatch(0, 0, 0, 0)
        adopted = replace(
            batch,
            number=batch.number + 1,
            epoch=offset.epoch,
            first=offset.next,
            until=offset.next,
            stream=offset.stream,
            created=offset.stream_created,
            store_inode=store.inode(),
            output_inode=folders.inode,
        )
        with store.transaction():
            store.put_batch(adopted)
            store.change(
                "DELETE FROM segments WHERE live NOT IN (SELECT path FROM files WHERE left_in > 0)"
            )
            store.change_files(
                "UPDATE files SET length = 0, length_before = 0, inode = 0, batch = 0 WHERE left_in = 0"
            )
            store.change("UPDATE spans SET until_before = NULL, batch = 0")
            store.put_files(rows)
            store.put_segments(segments)
    return len(rows)


def _readable(site: Site) -> Store:
    try:
        with Store(site.path, make=True) as store:
            store.check()
    except Damaged:
        aside = site.path.with_name(f"{site.path.name}.damaged-{time.time_ns()}")
        site.path.replace(aside)
        for suffix in ("-wal", "-shm", "-journal"):
            site.path.with_name(site.path.name + suffix).unlink(missing_ok=True)
    return Store(site.path, make=True)


def _unknown(path: str, site: Site) -> FileRow:
    layout = Layout(site.template)
    about = (path, layout.host_of(path), "", layout.date_of(path), 0, 0, 0, 1, 0, 0)
    return FileRow(*about, unfinished=None, unfinished_before=None, batch=0)


def _row(before: FileRow, number: int, folders: Folders) -> FileRow:
    found = folders.find(before.path)
    assert found is not None, "it was just listed"
    return before._replace(
        length=found.st_size,
        length_before=found.st_size,
        inode=found.st_ino,
        number=max(before.number, number + 1),
        last_line=before.last_line or found.st_mtime_ns,
        unfinished=UNKNOWN if folders.ends_in_line(before.path) else None,
        batch=0,
    )


def _segment(path: str, folders: Folders, site: Site) -> SegmentRow:
    found = folders.find(path)
    assert found is not None, "it was just listed"
    live, plain = live_of(path), plain_name(path)
    number = next(iter(closed_segments([plain])[live]))
    closed_at = datetime.fromtimestamp(found.st_mtime, UTC).isoformat(timespec="seconds")
    return SegmentRow(
        *(plain, live, number, Layout(site.template).date_of(live), found.st_ino, found.st_size),
        *(found.st_mtime_ns, closed_at, path.removeprefix(plain)),
        batch=0,
        length=found.st_size if path == plain else None,
    )
