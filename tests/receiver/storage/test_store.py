"""The store on disk: made whole or not at all, and what is none is left as it is."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from receiver.storage.site import Site
from receiver.storage.store import Damaged, FileRow, Store, StoredBatch

BATCH = StoredBatch(3, 1, 5, 9, "this", "before", "LOGS", "2026-11-20T00:00:00Z")


_WRITES_ON = """
import os, signal, sys
from pathlib import Path
from receiver.storage.store import Store, StoredBatch
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
