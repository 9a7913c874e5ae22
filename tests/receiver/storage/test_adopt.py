"""Files are adopted whatever has become of the store."""

from pathlib import Path

import pytest

from broker.wire.offset import Offset
from receiver.storage.site import Site, adopt
from receiver.storage.store import FileRow, Store, StoredBatch
from receiver.storage.tables import Spans

PAGE = 4096
FILES = 200


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path / "out", tmp_path / "state", 0)
    for folder in (site.output, site.state):
        folder.mkdir()
    for number in range(FILES):
        (site.output / f"web{number}.log").write_bytes(b"x\n")
    with Store(site.path, make=True) as store:
        with store.transaction():
            store.put_batch(StoredBatch(1, 1, 10, 20, "this"))
        with store.transaction():
            store.put_files(map(row, range(FILES)))
            spans = Spans(store)
            for number in range(FILES):
                spans[f"web{number}", f"{number:032}"] = 2, 0
            spans.put(1)
    return site


def row(number: int) -> FileRow:
    what = (f"web{number}.log", f"web{number}", "", "", 1, 1, 0, 1, 0, 0)
    return FileRow(*what, unfinished=None, unfinished_before=None, batch=1)


def test_files_are_adopted_whichever_page_of_the_store_is_damaged(site: Site) -> None:
    whole = site.path.read_bytes()
    for begin in range(0, len(whole), PAGE):
        site.path.write_bytes(whole[:begin] + bytes(PAGE) + whole[begin + PAGE :])

        assert adopt(site, Offset(20, 2, "", "a:1")) == FILES

        with Store(site.path) as store:
            store.check()
            assert {row.length for row in store.files("TRUE")} == {2}
