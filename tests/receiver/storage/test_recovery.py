"""A store and its files at a start: what is undone, what is refused, how files are adopted."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nats_logship.wire.offset import Offset
from receiver.storage.damage import Damaged
from receiver.storage.folders import walk_files
from receiver.storage.partition_folders import PartitionFolders
from receiver.storage.recovery import adopt, find_first_to_undo
from receiver.storage.rows import FileRow, StoredBatch
from receiver.storage.spans import StoredSpanEnds
from receiver.storage.store import Store

CREATED, LATER = "2026-11-20T00:00:00Z", "later"
BATCH = StoredBatch(7, 3, 10, 20, "this", "before", "LOGS", CREATED)
KEPT, UNDONE, REFUSED = 8, 7, 0


@pytest.mark.parametrize(
    ("next_", "commit", "moved_in", "created", "expected"),
    [
        pytest.param(20, "this", 0, CREATED, KEPT, id="committed"),
        pytest.param(10, "before", 0, CREATED, UNDONE, id="stored and not committed"),
        pytest.param(5, "this", 4, CREATED, KEPT, id="committed, then set back"),
        pytest.param(10, "this", 4, CREATED, KEPT, id="committed, then set back to its first"),
        pytest.param(5, "before", 4, CREATED, UNDONE, id="not committed, then set back"),
        pytest.param(20, "before", 4, CREATED, UNDONE, id="not committed, then set to its end"),
        pytest.param(20, "later", 4, CREATED, KEPT, id="set back to where older files end"),
        pytest.param(20, "not known", 4, CREATED, KEPT, id="lost, then set to the end of files"),
        pytest.param(5, "this", 4, LATER, KEPT, id="committed, then another stream"),
        pytest.param(10, "before", 4, LATER, KEPT, id="stored, then another stream"),
        pytest.param(5, "older", 4, LATER, KEPT, id="stream and KV restored"),
        pytest.param(20, "later", 0, CREATED, REFUSED, id="another batch, same end"),
        pytest.param(30, "later", 0, CREATED, REFUSED, id="behind"),
        pytest.param(5, "older", 0, CREATED, REFUSED, id="before"),
        pytest.param(10, "", 0, CREATED, REFUSED, id="nothing was ever committed"),
        pytest.param(15, "this", 0, CREATED, REFUSED, id="committed, then changed"),
        pytest.param(20, "before", 0, CREATED, REFUSED, id="not committed, then changed"),
        pytest.param(15, "later", 4, CREATED, REFUSED, id="set to another sequence"),
    ],
)
def test_the_offset_says_whether_the_last_batch_is_kept_undone_or_refused(
    next_: int, commit: str, moved_in: int, created: str, expected: int
) -> None:
    offset = Offset(next_, 5, created, "a:1", commit=commit, moved_in=moved_in)
    if expected is not REFUSED:
        assert find_first_to_undo(BATCH, offset, 3) == expected
        return

    with pytest.raises(Damaged) as raised:
        find_first_to_undo(BATCH, offset, 3)
    for part in ("files end before sequence 20", f"the offset is {next_}", "adopt --partition 3`"):
        assert part in str(raised.value)


_WRITES_ON = """
import os, signal, sys
from pathlib import Path
from receiver.storage.rows import StoredBatch
from receiver.storage.store import Store
store = Store(Path(sys.argv[1]))
for number, files in [(4, 2000), (5, 1)]:
    with store.transaction():
        store.put_files(row._replace(length=number) for row in store.list_files()[:files])
        store.put_batch(StoredBatch(number, 1, number, number + 1))
    if files > 1:
        store.rows("PRAGMA wal_checkpoint")  # as SQLite does now and then
os.kill(os.getpid(), signal.SIGKILL)
"""


def make_row(number: int, length: int = 1, batch: int = 1) -> FileRow:
    return FileRow(f"web{number}.log", f"web{number}", "", "", length, length, 0, batch=batch)


def test_an_older_store_with_the_wal_of_a_newer_one_is_refused(tmp_path: Path) -> None:
    folders = PartitionFolders(tmp_path / "out", tmp_path / "state", 0)
    assert folders.read_last_batch(0) is None
    with Store.create(folders.store_path) as store, store.transaction():
        store.put_batch(StoredBatch(3, 1, 5, 9))
        store.put_files(make_row(number, 3, 3) for number in range(2000))
    older = folders.store_path.read_bytes()
    subprocess.run([sys.executable, "-c", _WRITES_ON, str(folders.store_path)], check=False)
    newer = PartitionFolders(folders.output, tmp_path / "copy", 0)
    shutil.copytree(folders.state, newer.state)
    folders.store_path.write_bytes(older)

    with pytest.raises(Damaged, match=r"p0\.db-wal beside it.*offsets adopt"):
        folders.read_last_batch(1)
    assert newer.read_last_batch(1) == StoredBatch(5, 1, 5, 6)


PAGE = 4096
FILES = 200


@pytest.fixture
def folders(tmp_path: Path) -> PartitionFolders:
    folders = PartitionFolders(tmp_path / "out", tmp_path / "state", 0)
    for folder in (folders.output, folders.state):
        folder.mkdir()
    for number in range(FILES):
        (folders.output / f"web{number}.log").write_bytes(b"x\n")
    with Store.create(folders.store_path) as store, store.transaction():
        store.put_batch(StoredBatch(1, 1, 10, 20, "this"))
        store.put_files(map(make_row, range(FILES)))
        ends = StoredSpanEnds(store)
        for number in range(FILES):
            ends[f"web{number}", f"{number:032}"] = 2, 0
        ends.store(1)
    return folders


def test_files_are_adopted_whichever_page_is_damaged(folders: PartitionFolders) -> None:
    whole = folders.store_path.read_bytes()
    for begin in range(0, len(whole), PAGE):
        damaged = whole[:begin] + bytes(PAGE) + whole[begin + PAGE :]
        folders.store_path.write_bytes(damaged)

        assert adopt(folders, Offset(20, 2, "", "a:1")) == FILES

        with Store(folders.store_path) as store:
            store.check()
            assert {row.length for row in store.list_files()} == {2}


def test_a_store_without_its_end_is_refused(folders: PartitionFolders) -> None:
    whole = folders.store_path.read_bytes()
    batch = folders.read_last_batch(1)
    for missing in (40, 400, PAGE - 8, PAGE, 2 * PAGE + 100, len(whole) - 100):
        folders.store_path.write_bytes(whole[:-missing])
        with pytest.raises(Damaged, match="offsets adopt"):
            folders.read_last_batch(1)

    folders.store_path.write_bytes(whole)
    assert folders.read_last_batch(1) == batch


def test_no_files_are_found_behind_a_link_or_deeper_than_ours(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    deep = out / "/".join("d" * 100)
    of_the_disk = out / "lost+found"  # which only root may read
    for folder in (deep, elsewhere, of_the_disk):
        folder.mkdir(parents=True)
    for file in (deep / "a.log", out / "b.log", elsewhere / "c.log", of_the_disk / "#7"):
        file.touch()
    (out / "folder").symlink_to(elsewhere)
    (out / "file").symlink_to(elsewhere / "c.log")

    assert list(walk_files(out)) == ["b.log"]
