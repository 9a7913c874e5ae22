"""Whether a store is one that goes with the files."""

from pathlib import Path

import pytest

from receiver.storage.position import Batch, Damaged
from receiver.storage.site import Site
from receiver.storage.store import FileRow, Store

FILES = 300


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path / "out", tmp_path / "state", 0)
    for folder in (site.output, site.state):
        folder.mkdir()
    with Store(site.path, make=True) as store:
        put(store, Batch(1, 1, 1, 10, store_inode=store.inode()), range(FILES), 100)
    return site


def put(store: Store, batch: Batch, numbers: range, length: int) -> None:
    with store.transaction():
        store.put_batch(batch)
        store.put_files(row(number, length) for number in numbers)


def row(number: int, length: int) -> FileRow:
    what = (f"web{number}.log", f"web{number}", "", "", length, length, 0, 1, 0, 0)
    return FileRow(*what, unfinished=None, unfinished_before=None, batch=1)


def test_a_copy_of_a_store_is_taken(site: Site) -> None:
    copy = site.path.read_bytes()
    site.path.rename(site.path.with_name("before"))
    site.path.write_bytes(copy)

    batch = site.last_batch(1)

    assert batch is not None
    assert batch.until == 10


def test_an_older_copy_beside_the_log_of_a_newer_store_is_refused(site: Site) -> None:
    copy, log = site.path.read_bytes(), site.path.with_name("p0.db-wal")
    with Store(site.path) as store:
        newer = Batch(2, 1, 10, 20, store_inode=store.inode())
        put(store, newer, range(FILES), 500)
        store.rows("PRAGMA wal_checkpoint(RESTART)")  # from here on the log begins anew
        put(store, newer, range(1), 900)
        left = log.read_bytes()
    site.path.rename(site.path.with_name("before"))
    site.path.write_bytes(copy)
    log.write_bytes(left)

    with pytest.raises(Damaged, match=r"p0\.db is damaged.*offsets adopt --partition 0"):
        site.last_batch(1)
