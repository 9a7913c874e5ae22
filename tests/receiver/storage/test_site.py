"""Whether a store is one that goes with the files."""

from pathlib import Path

import pytest

from receiver.storage.position import StoredBatch
from receiver.storage.site import Site
from receiver.storage.store import FileRow, Store

FILES = 300


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path / "out", tmp_path / "state", 0)
    for folder in (site.output, site.state):
        folder.mkdir()
    with Store(site.path, make=True) as store:
        put(store, StoredBatch(1, 1, 1, 10, store_inode=store.inode()), range(FILES), 100)
    return site


def put(store: Store, batch: StoredBatch, numbers: range, length: int) -> None:
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
