"""A task of a table: what it writes of a range, and what it says about it."""

import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from nats_logship.app.exits import OperatorError
from nats_logship.client.access import Access
from receiver.spark.session import pack_for_executors
from receiver.table.plan import Range
from receiver.table.write import Broker, Written, write_range
from tests.receiver.partition import api, lines_of, message
from tests.receiver.table.tabled import Tabled

pytestmark = pytest.mark.nats


TASKS = """
import sys
from datetime import date, datetime
sys.path.insert(0, sys.argv[1])
from nats_logship.client.access import Access
from receiver.table.columns import LINES
from receiver.table.compact import Group, merge_files
from receiver.table.location import Location
from receiver.table.memory import run_and_release
from receiver.table.parquet import KnownFile
from receiver.table.plan import Range
from receiver.table.write import Broker, write_range

_, _, url, folder, created = sys.argv
lines, gaps = Location(f"{folder}/lines"), Location(f"{folder}/gaps")
work = lambda chosen: write_range(chosen, Broker((url,), Access()), lines, gaps)
written = run_and_release(work, Range("LOGS", created, 1, 3))
[file], [_] = written.files, written.gaps
known = KnownFile(file.path, date.fromisoformat(file.day), file.size, file.rows, "", "")
_, merged = run_and_release(merge_files, Group((known,), lines, LINES))
print(file.rows, merged.rows)
"""


def test_tasks_in_a_folder_need_pyarrow_alone_besides_what_executors_get(
    tabled: Tabled, tmp_path: Path
) -> None:
    section, lines = lines_of("a", 0, b"1 a\n  b\n2 c\n")
    tabled.publish(message("web01", (replace(section, records="start:^[0-9]"), lines)))
    tabled.publish(("logs.p0.bad", b"x", {"Log-Agent": "1-1", "Log-Read-At": "x"}))
    created = api(tabled.url, "STREAM.INFO.LOGS")["created"]
    executor = tmp_path / "executor"
    shutil.unpack_archive(pack_for_executors(tmp_path), executor)
    (executor / "pyarrow").symlink_to(Path(pa.__file__).parent)

    task = [sys.executable, "-I", "-S", "-c", TASKS, executor, tabled.url, tmp_path, created]
    ended = subprocess.run(task, capture_output=True, text=True, timeout=120, check=False)

    assert ended.stdout == "3 3\n", ended.stderr


def write(tabled: Tabled, until: int, created: str = "") -> Written:
    """Write the sequences before `until` of the stream, or of one created at another time."""
    created = created or api(tabled.url, "STREAM.INFO.LOGS")["created"]
    broker, where = Broker((tabled.url,), Access()), tabled.location
    chosen = Range("LOGS", created, 1, until)
    return write_range(chosen, broker, where.child("lines"), where.child("gaps"))


@pytest.mark.parametrize("is_purged", [False, True])
def test_what_is_missing_is_written_by_the_task_and_not_carried_to_the_driver(
    tabled: Tabled, is_purged: bool
) -> None:
    bad = {"Log-Agent": "1-1", "Log-Read-At": "x"}
    one = ("logs.p0.bad", os.urandom(2**20), bad)
    tabled.publish(*(one, ("logs.p0.x", b"1", None)) * 40)
    if is_purged:
        api(tabled.url, "STREAM.PURGE.LOGS", {"filter": "logs.p0.bad"})
    written = write(tabled, 81)

    assert len(pickle.dumps(written)) < 10_000
    assert sum(one.rows for one in written.gaps) == sum(one.rows for one in written.files) == 40
    assert max(one.size for one in written.gaps) < 20 * 2**20
    assert len(written.gaps) == (1 if is_purged else 3)


def test_a_stream_that_is_purged_while_it_is_read_is_read_on(tabled: Tabled) -> None:
    tabled.publish(*(("logs.p0.x", b"%d" % number, None) for number in range(1, 6)))
    api(tabled.url, "STREAM.PURGE.LOGS", {"seq": 4})
    written = write(tabled, 6)

    assert [one.rows for one in written.files] == [2]
    assert [(row["kind"], row["first"], row["until"]) for row in written.missing] == [
        ("removed", 1, 4)
    ]


def test_a_stream_that_is_made_again_while_it_is_read_is_read_again(
    tabled: Tabled,
) -> None:
    tabled.publish_some(3)
    with pytest.raises(OperatorError, match="was created again"):
        write(tabled, 4, "2026-11-20T10:00:00Z")
