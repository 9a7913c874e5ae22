"""A store and its files at a start: what is undone, what is refused, how files are adopted."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nats_logship.wire.offset import Offset
from receiver.storage.adoption import adopt
from receiver.storage.commit import find_first_undone
from receiver.storage.damage import Damaged
from receiver.storage.folders import walk_files
from receiver.storage.partition_folders import PartitionFolders
from receiver.storage.rows import FileRow, StoredBatch
from receiver.storage.spans import StoredSpanEnds
from receiver.storage.store import Store

MADE = "2026-11-20T00:00:00Z"
BATCH = StoredBatch(7, 3, 10, 20, "this", "before", "LOGS", MADE)


def offset(next_: int, commit: str, moved_in: int = 0, made: str = MADE) -> Offset:
    return Offset(next_, 5, made, "a:1", commit=commit, moved_in=moved_in)


@pytest.mark.parametrize(
    ("where", "since"),
    [
        pytest.param(offset(20, "this"), 8, id="committed"),
        pytest.param(offset(10, "before"), 7, id="stored and not committed"),
        pytest.param(offset(5, "this", 4), 8, id="committed, then set back"),
        pytest.param(offset(10, "this", 4), 8, id="committed, then set back to its first"),
        pytest.param(offset(5, "before", 4), 7, id="not committed, then set back"),
        pytest.param(offset(20, "before", 4), 7, id="not committed, then set to its end"),
        pytest.param(offset(20, "later", 4), 8, id="set back to where older files end"),
        pytest.param(offset(20, "not known", 4), 8, id="lost, then set to where the files end"),
        pytest.param(offset(5, "this", 4, "later"), 8, id="committed, then another stream"),
        pytest.param(offset(10, "before", 4, "later"), 8, id="stored, then another stream"),
        pytest.param(offset(5, "older", 4, "later"), 8, id="stream and KV restored"),
    ],
)
def test_the_offset_says_whether_the_last_batch_is_undone(where: Offset, since: int) -> None:
    assert find_first_undone(BATCH, where, 0) == since


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(offset(20, "later"), id="committed by another up to the same sequence"),
        pytest.param(offset(30, "later"), id="behind"),
        pytest.param(offset(5, "older"), id="before"),
        pytest.param(offset(10, ""), id="nothing was ever committed"),
        pytest.param(offset(15, "this"), id="committed, then changed by other hands"),
        pytest.param(offset(20, "before"), id="not committed, then changed by other hands"),
        pytest.param(offset(15, "later", 4), id="moved elsewhere"),
    ],
)
def test_any_other_offset_is_refused_with_what_to_do(where: Offset) -> None:
    with pytest.raises(Damaged) as raised:
        find_first_undone(BATCH, where, 3)

    words = str(raised.value)
    assert "up to sequence 20" in words
    assert f"but the offset is {where.next}" in words
    assert "`logreceiver offsets adopt --partition 3`" in words


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


def test_an_older_store_beside_the_wal_of_a_newer_one_is_refused(tmp_path: Path) -> None:
    folders = PartitionFolders(tmp_path / "out", tmp_path / "state", 0)
    assert folders.read_last_batch(0) is None
    with Store.create(folders.store_path) as store, store.transaction():
        store.put_batch(StoredBatch(3, 1, 5, 9))
        store.put_files(
            FileRow(f"h{n}.log", f"h{n}", "", "", 3, 3, 1, 1, 0, 0, None, None, 3)
            for n in range(2000)
        )
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
    with Store.create(folders.store_path) as store:
        with store.transaction():
            store.put_batch(StoredBatch(1, 1, 10, 20, "this"))
        with store.transaction():
            store.put_files(map(row, range(FILES)))
            spans = StoredSpanEnds(store)
            for number in range(FILES):
                spans[f"web{number}", f"{number:032}"] = 2, 0
            spans.store(1)
    return folders


def row(number: int) -> FileRow:
    what = (f"web{number}.log", f"web{number}", "", "", 1, 1, 0, 1, 0, 0)
    return FileRow(*what, unfinished=None, unfinished_before=None, batch=1)


def test_files_are_adopted_whichever_page_of_the_store_is_damaged(
    folders: PartitionFolders,
) -> None:
    whole = folders.store_path.read_bytes()
    for begin in range(0, len(whole), PAGE):
        folders.store_path.write_bytes(whole[:begin] + bytes(PAGE) + whole[begin + PAGE :])

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
    deep = tmp_path / "out" / "/".join("d" * 100)
    deep.mkdir(parents=True)
    (deep / "a.log").touch()
    (tmp_path / "out" / "b.log").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "c.log").touch()
    (tmp_path / "out" / "folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "out" / "file").symlink_to(tmp_path / "elsewhere" / "c.log")

    assert list(walk_files(tmp_path / "out")) == ["b.log"]
