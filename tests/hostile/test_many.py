"""A host that names ever new files: the work grows in proportion, and others' lines come soon."""

import json
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from receiver.consume.assignment import Ending, SessionLimits
from receiver.storage.layout import Days, Layout
from receiver.storage.live_paths import LivePaths
from receiver.storage.store import Store
from tests.receiver.partition import Message, Partition

SECTIONS = 970  # of two bytes: as many as the headers of a message hold


def new_files(messages: int) -> list[Message]:
    """Return messages each of whose sections is of a file that was never seen."""
    found = []
    for message in range(messages):
        ids = range(message * SECTIONS, (message + 1) * SECTIONS)
        common = {"file": "", "start": 0, "end": 2, "size": 2, "lines": 1}
        spans = [{**common, "id": f"{one:x}"} for one in ids]
        text = json.dumps(spans, separators=(",", ":"))
        headers = {"Log-Agent": "1-00000001", "Log-Read-At": "1", "Log-Spans": text}
        found.append(("logs.p0.evil", b"x\n" * SECTIONS, headers))
    return found


@pytest.mark.nats
def test_a_line_behind_many_new_file_ids_comes_within_seconds(partition: Partition) -> None:
    partition.publish(*new_files(100))
    partition.lines("web01", b"the line of another host")
    began = time.process_time()

    report = partition.session(SessionLimits(longest=300, silence=2.0))

    assert time.process_time() - began < 40, "it takes three, and took 417"
    assert report.outcome is Ending.SILENCE
    assert partition.read("web01") == b"the line of another host\n"
    assert (report.done.lines, report.done.anomalies) == (100 * SECTIONS + 1, ())
    assert report.batches > 3, "each ends at so many files, so that progress is seen"


PATHS: dict[str, Callable[[int], str]] = {
    "in one folder": lambda number: f"/var/log/{number}",
    "in folders of their own": lambda number: f"/{number}/a/b",
    "in each other's folders": lambda number: "/a" * (number % 30) + f"/{number}",
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_the_work_for_a_new_path_does_not_grow_with_others(path: Callable[[int], str]) -> None:
    def work(first: int, count: int) -> float:
        began = time.process_time()
        for number in range(first, first + count):
            names.choose("evil", path(number), 0, is_own=True)
        return time.process_time() - began

    with Store.in_memory() as store:
        names = LivePaths(store, Layout("{host}/{file}"), Days())
        early = min(work(first, 400) for first in range(0, 1600, 400))
        work(1600, 12_000)
        late = min(work(first, 400) for first in range(13_600, 15_200, 400))

    assert late < 5 * early, "the same, but for noise; it was ten times as much"


@pytest.mark.nats
def test_the_work_for_a_batch_does_not_grow_with_unfinished_lines(partition: Partition) -> None:
    partition = replace(partition, limit=1, pull=1)
    session = SessionLimits(longest=300, silence=2.0)

    def work(first: int) -> float:
        last = partition.lines("web01", *[b"a line"] * 40)
        began = time.process_time()
        report = partition.session(session, first)
        assert (report.batches, report.done.until) == (40, last + 1)
        return time.process_time() - began

    early = min(work(first) for first in (1, 41, 81))  # the least is the least noisy
    partition.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
        "INSERT INTO files SELECT 'evil' || i, 'evil', i, '', 0, 0, 0, 1, 0, 0, '0a:' || i, NULL, "
        "0, 0 FROM n"
    )

    late = min(work(first) for first in (121, 161, 201))
    assert late < 5 * early, "it was twenty times as much"
