"""The two folders of a partition on this machine: whether store and files belong together, and what a start makes of them.

What is stored and not committed is cut off, as the offset in KV says, and what a batch has left that failed in mid-run. Every
step may find that it was done before. Rotations are finished and never undone: a batch closes files only before it appends to
them. Or a person has files adopted as they are.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.faults import fault
from nats_logship.app.text import format_count
from nats_logship.wire.offset import Offset
from nats_logship.wire.subjects import partition_of
from receiver.storage.folders import Folders, make_folder, walk
from receiver.storage.layout import DEFAULT, Layout
from receiver.storage.rotation import live_of, parse_closed
from receiver.storage.store import (
    NOT_CLOSED,
    UNKNOWN,
    Damaged,
    FileRow,
    Misplaced,
    SegmentRow,
    Store,
    StoredBatch,
    path_of,
)
from receiver.storage.tables import gap_report

_MOST_NOTICES = 20  # of a start


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
        """Return the batch that was stored last, by a store that is whole; raises and returns None as `open` does."""
        store = self.open(lines)
        if store is None:
            return None
        with store:
            store.check_pages()
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
        except FileNotFoundError:
            pass  # that's fine: it is asked of the files whether there was one
        if lines and (found := next(self.files(), None)):
            raise Misplaced(
                self.partition,
                f"{self.path} is gone, but {self.output} holds files of partition {self.partition}, such as {found}: give "
                "the right --state-dir, or bring it back, unless it is lost",
            )
        return None

    def _check(self, store: Store, batch: StoredBatch) -> None:
        """Raise `Damaged` for files of another path template, or that are not in this folder."""
        if store.template() not in {"", self.template}:
            reason = _other_template(store, self.template)
            raise Damaged(self.partition, reason, command="")
        if batch.output_inode in {0, self.output.stat().st_ino}:
            return
        known = store.files("length > 0")
        if known and not any((self.output / row.path).is_file() for row in known):
            raise Misplaced(
                self.partition,
                f"none of the {format_count(len(known), 'file')} that {self.path} names is in {self.output}: is its disk mounted? Mount it, "
                "or give the right --output, unless they are lost",
            )

    def files(self) -> Iterator[str]:
        """Yield the files below the output folder that must be this partition's, live and closed; raises OSError."""
        layout, others = Layout(self.template), self._known_to_others()
        for path in walk(self.output):
            live = live_of(path)
            host, mark, *_ = layout.parse(live)
            is_own = mark == f"..p{self.partition}" if mark else self.is_home_of(host)
            if host and is_own and live not in others:
                yield path

    def _known_to_others(self) -> set[str]:
        known: set[str] = set()
        for path in self.state.glob("p*.db"):
            if path != self.path:
                with suppress(OSError, Damaged), Store(path) as store:
                    known.update(row.path for row in store.files("TRUE"))
        return known


def require_template(state: Path, template: str) -> None:
    """Raise `ConfigurationError` where a store has files of another path template.

    A store that cannot be read is found by who needs it.
    """
    for path in sorted(state.glob("p*.db")):
        with suppress(OSError, Damaged), Store(path) as store:
            if store.template() not in {"", template}:
                raise ConfigurationError(_other_template(store, template))


def _other_template(store: Store, template: str) -> str:
    return (
        f"the files of {store.path} were written with --path-template {store.template()}, but "
        f"{template} is asked for: give the former again, or another --output and --state-dir"
    )


def settled(
    number: int, offset: Offset, store_inode: int, output_inode: int, template: str
) -> StoredBatch:
    """Return an empty batch at an offset: nothing that is written is waiting for its commit."""
    begin, commit = (offset.epoch, offset.next, offset.next), (offset.commit, offset.commit)
    stream = (offset.stream, offset.stream_created)
    return StoredBatch(number, *begin, *commit, *stream, store_inode, output_inode, template)


def first_undone(batch: StoredBatch, offset: Offset, partition: int) -> int:
    """Return the number of the first batch that is to be taken back: the one that was stored last, or the one behind it.

    Unless a person has moved it, the offset stands at the end of the batch that it names. A person who moves it to where
    the files end says that they go together. Where the stream is another one by now, restored from a backup or made anew,
    nothing can be read again: what is stored stays. Raises `Damaged` for any other offset.
    """
    is_moved = offset.moved_in > 0
    if batch.created not in {"", offset.stream_created}:
        return batch.number + 1
    if offset.commit == batch.commit_id and (is_moved or offset.next == batch.until):
        return batch.number + 1
    if offset.commit == batch.previous_id and (is_moved or offset.next == batch.first):
        return batch.number
    if is_moved and offset.next == batch.until:
        return batch.number + 1
    raise Damaged(
        partition,
        f"the files were written from sequence {batch.first} up to sequence {batch.until} in epoch {batch.epoch}, but the "
        f"offset is {offset.next} in epoch {offset.epoch}, behind another batch: one of them was changed, is older, or of other "
        "files; bring back the right one, unless it is lost",
    )


def recover(store: Store, folders: Folders, since: int, offset: Offset, template: str) -> list[str]:
    """Take back the batches from a number on, and cut what is behind the committed length of any file.

    On disk when this returns. Returns notices of bytes that no stored batch wrote: a task may have
    died over them, or somebody else have written them. Raises OSError, `Damaged`.
    """
    batch = store.batch()
    assert batch is not None, "begun before it is recovered"
    trusts_inodes = batch.store_inode in {0, store.inode()}
    store.return_files_since(since)
    closing = store.segments("batch > ? AND path != live", batch.number)
    for segment in closing:
        found = _regular(segment.live, folders)
        if found and not folders.find(segment.path):
            if segment.length is not None and found.st_size > segment.length:
                folders.cut(segment.live, segment.length)  # somebody else has appended to it
            folders.rename(segment.live, segment.path)
            fault("undoing")
    rows = store.files(NOT_CLOSED)
    notices: list[str] = []
    recovered = [
        _recovered(row, folders, since, notices if trusts_inodes else None) for row in rows
    ]
    folders.sync()
    fault("undone")
    after = settled(batch.number, offset, store.inode(), folders.inode, template)
    changed = [row for row, before in zip(recovered, rows, strict=True) if row != before]
    if changed or closing or after != batch:
        with store.transaction():
            store.put_files(changed)
            store.undo(since, batch.number)
            store.put_batch(after)
        fault("settled")
    rest = len(notices) - _MOST_NOTICES
    return [*notices[:_MOST_NOTICES], *[f"so were bytes of {rest} other files"] * (rest > 0)]


def _recovered(row: FileRow, folders: Folders, since: int, notices: list[str] | None) -> FileRow:
    """Make a file what it was before a batch; return its row as it is then.

    Without `notices` any file at its path is the one that the store means: inodes say nothing.
    """
    is_undone = row.batch >= since
    length = row.length_before if is_undone else row.length
    found = _regular(row.path, folders)
    is_new = is_undone and not row.inode
    if found and (found.st_ino == row.inode or is_new or notices is None):
        if (surplus := found.st_size - length) > 0:
            if notices is not None and not is_undone:
                notices.append(_cut_off(row.path, surplus))
            folders.cut(row.path, length)
            fault("undoing")
        row = row._replace(inode=found.st_ino)
    if not is_undone:
        return row
    return row._replace(
        length=length,
        length_before=length,
        last_line=row.last_line_before,
        unfinished=row.unfinished_before,
        batch=0,
    )


def _cut_off(path: str, surplus: int) -> str:
    return (
        f"{path}: {surplus} bytes behind what was committed are cut off: a task died over them, or "
        "somebody else appended them"
    )


def _regular(path: str, folders: Folders) -> os.stat_result | None:
    with suppress(OSError):  # that's fine: it is told when lines come for it
        return folders.find(path)
    return None


def adopt(site: Site, offset: Offset) -> int:
    """Have the store of a partition say that its files are committed as they are; return how many live ones there are.

    To be called under the partition's lock. Gaps and spans stay where they can be read; a store that cannot be read is
    put aside. Raises OSError.
    """
    ours = set(site.files())
    with _readable(site) as store, closing(Folders(site.output)) as folders:
        known = {row.path: row for row in store.files("TRUE")}
        ours |= {path for path in {*known, gap_report(site.partition)} if folders.find(path)}
        lives = sorted(path for path in ours if not parse_closed(path))
        numbers: dict[str, int] = {}
        for live, number, _ in filter(None, map(parse_closed, ours)):
            numbers[live] = max(number, numbers.get(live, 0))
        rows = [_row(path, known, numbers.get(path, 0), folders, site) for path in lives]
        segments = [_segment(path, folders, site) for path in ours.difference(lives)]
        batch = store.batch()
        with store.transaction():
            following = batch.number + 1 if batch else 1
            now = settled(following, offset, store.inode(), folders.inode, site.template)
            store.put_batch(now)
            store.forget_batches()
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


def _row(
    path: str, known: dict[str, FileRow], number: int, folders: Folders, site: Site
) -> FileRow:
    """Return the row of a live file as it is; whose line its last one is nobody knows."""
    found, told = folders.find(path), Layout(site.template).parse(path)
    assert found is not None, "it was just listed"
    row = known.get(path) or FileRow(path, told.host, "", told.day)
    return row._replace(
        length=found.st_size,
        length_before=found.st_size,
        inode=found.st_ino,
        number=max(row.number, number + 1),
        last_line=row.last_line or found.st_mtime_ns,
        unfinished=UNKNOWN if row.host and found.st_size else None,
        batch=0,
    )


def _segment(path: str, folders: Folders, site: Site) -> SegmentRow:
    found, closed = folders.find(path), parse_closed(path)
    assert found is not None, "it was just listed"
    assert closed is not None, "it is no live one"
    live, number, suffix = closed
    plain = path.removesuffix(suffix)
    day, length = Layout(site.template).parse(live).day, None if suffix else found.st_size
    about = (plain, live, number, day, found.st_size, found.st_mtime_ns)
    return SegmentRow(*about, compressed=suffix, batch=0, length=length)
