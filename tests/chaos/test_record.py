"""The record: what a run leaves for ever."""

from pathlib import Path

import pytest

from bench.oracle import Verdict
from tests.chaos.record import Entry, append, lines_of, read, write
from tests.chaos.retell import README, RECORD, retold

ENTRY = Entry(
    suite="logship",
    date="2026-11-21T20:00:00Z",
    seed=7,
    shape={"topology": "cluster", "receivers": "spark", "hosts": 2},
    seconds=61.5,
    strokes=2,
    faults={"kill-shipper": 2},
    not_struck={"kill-jvm": 1},
    waits=(0.4, 12.5),
    longest={"kill-shipper": 12.5},
    lines={"written": 100, "received": 99, "missing": 1},
    findings=("web01: 1 missing",),
)


def test_runs_are_read_as_they_were_appended(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"

    append(path, ENTRY)
    append(path, ENTRY)

    assert read(path) == [ENTRY, ENTRY]


def test_a_finding_stays_by_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    entry = Entry.from_json({**ENTRY.as_json(), "findings": ["web01: 1 missing\n  missing: b'x'"]})

    write(path, [entry])

    assert read(path) == [ENTRY]


def test_a_finding_tells_nothing_of_the_machine_that_it_was_made_on(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    words = "process 7 (/home/me/it/.venv/bin/python -m x) left /tmp/c/7/out/.bonds/.p2.ea, of nats://10.0.0.1:4222"

    write(path, [Entry.from_json({**ENTRY.as_json(), "findings": [words]})])
    write(path, read(path))

    assert read(path)[0].findings == (
        "process 7 (…/bin/python -m x) left …/.bonds/.p2.ea, of nats://10.0.0.1:4222",
    )


def test_a_line_that_is_no_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    append(path, ENTRY)
    with path.open("a") as file:
        file.write('{"suite": "logship"}\n')

    with pytest.raises(ValueError, match=r"record.jsonl:2: no run of the record"):
        read(path)


def test_lines_are_summed_over_hosts() -> None:
    verdicts = [Verdict(10, 9, missing=1), Verdict(5, 7, repeated=2, bytes_equal=False)]

    sums = lines_of(verdicts)

    assert (sums["written"], sums["received"]) == (15, 16)
    assert (sums["missing"], sums["repeated"], sums["torn"]) == (1, 2, 0)


def test_the_readme_tells_the_record_as_it_is() -> None:
    readme = README.read_text("utf-8")

    assert retold(readme, read(RECORD)) == readme, "make chaos-record"
