"""Stores for tests without a broker: created, filled with rows, and open partitions."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from nats_logship.wire.offset import Offset
from receiver.consume.assignment import Assignment, Destination
from receiver.consume.partition import OpenPartition
from receiver.storage.rotation import find_live_name
from receiver.storage.rows import FileRow, SegmentRow, StoredBatch
from receiver.storage.store import Store, make_store_path


@contextmanager
def opened(destination: Destination, next_: int = 1, epoch: int = 1) -> Iterator[OpenPartition]:
    """Open partition 0 as a task does that has its lock, where all before `next_` was committed."""
    for folder in (destination.output, destination.state):
        folder.mkdir(parents=True, exist_ok=True)
    offset = Offset(next_, epoch, "2026-11-20T00:00:00Z", "tests:1")
    assignment = Assignment(0, next_, epoch, 1)
    with closing(OpenPartition(assignment, destination, offset)) as partition:
        partition.recover()
        yield partition


def begun(state: Path, output: Path, partition: int = 0) -> Store:
    """Return a store whose first batch is committed."""
    store = Store.create(make_store_path(state, partition))
    if store.read_batch() is None:
        inode = output.stat().st_ino if output.exists() else 0
        with store.transaction():
            store.put_batch(StoredBatch(1, 1, 5, 5, store_inode=store.inode, output_inode=inode))
    return store


def add(state: Path, output: Path, *names: str, moment: int = 1) -> None:
    """Have the store of partition 0 know files that are there, live ones and closed ones."""
    with begun(state, output) as store, store.transaction():
        for name in names:
            size, live = (output / name).lstat().st_size, find_live_name(name)
            if live == name:
                row = (name, name, "", "", size, size, (output / name).stat().st_ino, 1)
                store.put_files([FileRow(*row, moment, moment, batch=1)])
            else:
                number = int(name.removeprefix(f"{live}.").partition(".")[0])
                store.put_segments([SegmentRow(name, live, number, "", size, moment, "", 1)])


def age(state: Path, output: Path, name: str, moment: int) -> None:
    """Change when the last line of a file was stored."""
    with begun(state, output) as store, store.transaction():
        for table in ("files", "segments"):
            store.change(f"UPDATE {table} SET last_line = ? WHERE path = ?", moment, name)
