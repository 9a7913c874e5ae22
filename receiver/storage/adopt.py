"""Files taken as they are on disk, as committed at the offset: a person's word, where the store is lost or is another one."""

import time
from dataclasses import replace
from datetime import UTC, datetime

from receiver.storage.folders import Folders, make_folder
from receiver.storage.gaps import gap_report
from receiver.storage.layout import Layout
from receiver.storage.position import Batch, Damaged, Position
from receiver.storage.rotation import (
    closed_segments,
    highest_numbers,
    is_closed,
    live_of,
    plain_name,
)
from receiver.storage.site import Site
from receiver.storage.store import UNKNOWN, FileRow, SegmentRow, Store

__all__ = ["adopt"]


def adopt(site: Site, position: Position) -> int:
    """Have the store of a partition say that its files are committed as they are; return how many live ones there are.

    To be called under the partition's lock. Gaps and spans stay where they can be read; a store that cannot be read is
    put aside. Raises OSError.
    """
    make_folder(site.output)
    make_folder(site.state)
    paths = sorted(site.files())
    with _readable(site) as store:
        batch = store.batch() or Batch(0, 0, 0, 0)
        known = {row.path: row for row in store.files("TRUE")}
        folders = Folders(site.output)
        try:
            others = (path for path in {*known, gap_report(site.partition)} if folders.find(path))
            paths = sorted({*paths, *others})
            numbers = highest_numbers(paths)
            lives = [path for path in paths if not is_closed(path)]
            rows = [
                _row(_known(path, known, site), numbers.get(path, 0), folders) for path in lives
            ]
            segments = [_segment(path, folders, site) for path in paths if is_closed(path)]
            inode = folders.inode
        finally:
            folders.close()
        with store.transaction():
            store.put_batch(
                replace(
                    batch,
                    number=batch.number + 1,
                    epoch=position.epoch,
                    first=position.next,
                    until=position.next,
                    stream=position.stream,
                    created=position.created,
                    store_inode=store.inode(),
                    output_inode=inode,
                )
            )
            _put(store, rows, segments)
    return len(rows)


def _put(store: Store, rows: list[FileRow], segments: list[SegmentRow]) -> None:
    store.change("DELETE FROM segments WHERE live NOT IN (SELECT path FROM left_files)")
    store.change("UPDATE files SET length = NULL, length_before = NULL, inode = 0, batch = 0")
    store.change("UPDATE spans SET until_before = NULL, batch = 0")
    store.put_files(rows)
    store.put_segments(segments)


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


def _known(path: str, known: dict[str, FileRow], site: Site) -> FileRow:
    layout = Layout(site.template)
    host, day = layout.host_of(path), layout.date_of(path)
    return known.get(path) or FileRow(
        path, host, "", day, 0, 0, 0, 1, 0, 0, unfinished=None, unfinished_before=None, batch=0
    )


def _row(before: FileRow, number: int, folders: Folders) -> FileRow:
    found = folders.find(before.path)
    assert found is not None, "it was just listed"
    is_torn = folders.ends_in_line(before.path)
    return before._replace(
        length=found.st_size,
        length_before=found.st_size,
        inode=found.st_ino,
        number=max(before.number, number + 1),
        last_line=before.last_line or found.st_mtime_ns,
        unfinished=UNKNOWN if is_torn else None,
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
        last_line=found.st_mtime_ns,
        closed_at=closed_at,
        compressed=path.removeprefix(plain),
        batch=0,
        length=found.st_size if path == plain else None,
    )
