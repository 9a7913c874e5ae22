"""The store on disk: made whole or not at all, and what is none is left as it is."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from receiver.storage.position import Damaged, StoredBatch
from receiver.storage.site import Site
from receiver.storage.store import FileRow, Store

BATCH = StoredBatch(3, 1, 5, 9, "LOGS", "2026-11-20T00:00:00Z")
_DIES = """
import os, signal, sys
from pathlib import Path
from receiver.storage.store import Store
from receiver.storage.position import StoredBatch
store = Store(Path(sys.argv[1]), make=True)
store.begin(StoredBatch(3, 1, 5, 9, "LOGS", "2026-11-20T00:00:00Z"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "p0.db"


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_commit_is_synced_to_disk(path: Path) -> None:
    with Store(path, make=True) as store:
        assert store.rows("PRAGMA synchronous") == [(2,)]
        assert store.rows("PRAGMA journal_mode") in ([("wal",)], [("truncate",)])


def test_what_was_committed_before_a_kill_is_there(path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", _DIES, str(path)], check=False)
    left = path.with_name("p0.db-wal").exists()

    assert killed.returncode == -9
    assert left, "the log is what is tested here"
    with Store(path) as store:
        assert store.batch() == BATCH


def test_a_log_whose_store_is_gone_is_not_taken_for_another_store(path: Path) -> None:
    subprocess.run([sys.executable, "-c", _DIES, str(path)], check=False)
    path.unlink()

    with Store(path, make=True) as store:
        assert store.batch() is None


@pytest.mark.parametrize("size", [0, 40, 5_000])
def test_what_is_no_store_is_an_error_and_left_as_it_is(path: Path, size: int) -> None:
    path.write_bytes(b"some other text "[:16] * (size // 16 + 1) if size else b"")
    before = everything(path.parent)

    with pytest.raises((Damaged, FileNotFoundError)) as raised:
        Store(path)

    assert str(path) in str(raised.value)
    assert everything(path.parent) == before


@pytest.mark.parametrize("make", [False, True])
def test_a_database_of_somebody_else_is_refused_and_left_as_it_is(path: Path, make: bool) -> None:
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("PRAGMA user_version=7")
        other.execute("CREATE TABLE theirs (x)")
    before = everything(path.parent)

    with pytest.raises(Damaged, match="is of version 7"):
        Store(path, make=make)

    assert everything(path.parent) == before


def test_a_store_that_is_being_made_is_not_there_yet_for_others(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as maker:
        maker.execute("PRAGMA journal_mode=WAL")
        maker.execute("BEGIN IMMEDIATE")
        maker.execute("CREATE TABLE batch (number INTEGER)")
        with pytest.raises(FileNotFoundError):
            Store(path)
        maker.execute("ROLLBACK")


def test_the_name_of_a_new_store_is_brought_to_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with Store(path, make=True):
        assert path.parent.stat().st_ino in synced


def test_a_link_in_place_of_the_store_is_refused(path: Path) -> None:
    path.symlink_to(path.with_name("victim"))

    with pytest.raises(OSError, match="symbolic link"):
        Store(path, make=True)

    assert not path.with_name("victim").exists()


_WRITES_ON = """
import os, signal, sys
from pathlib import Path
from receiver.storage.position import StoredBatch
from receiver.storage.store import Store
store = Store(Path(sys.argv[1]))
for number, files in [(4, 2000), (5, 1)]:
    with store.transaction():
        store.put_files(row._replace(length=number) for row in store.files("TRUE")[:files])
        store.put_batch(StoredBatch(number, 1, number, number + 1))
    if files > 1:
        store.rows("PRAGMA wal_checkpoint")  # as SQLite does now and then
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_older_store_under_the_log_of_a_newer_one_is_refused(tmp_path: Path) -> None:
    site = Site(tmp_path / "out", tmp_path / "state", 0)
    assert site.last_batch(0) is None
    with Store(site.path, make=True) as store, store.transaction():
        store.put_batch(BATCH)
        store.put_files(
            FileRow(f"h{n}.log", f"h{n}", "", "", 3, 3, 1, 1, 0, 0, None, None, 3)
            for n in range(2000)
        )
    older = site.path.read_bytes()
    subprocess.run([sys.executable, "-c", _WRITES_ON, str(site.path)], check=False)
    newer = Site(site.output, tmp_path / "copy", 0)
    shutil.copytree(site.state, newer.state)
    site.path.write_bytes(older)

    with pytest.raises(Damaged, match=r"p0\.db-wal beside it.*offsets adopt"):
        site.last_batch(1)
    assert newer.last_batch(1) == StoredBatch(5, 1, 5, 6)
