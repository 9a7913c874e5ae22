"""Results as JSON, and what makes one void."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.field.system import Guarantees
from bench.machine import Machine
from bench.result import Record, Result, Run, Spread, read, write

KEPT = Guarantees(acked=True, fsynced=True, ordered=True, survives_kill=False)
RUN = Run({"MB/s": 150.0, "CPU s/GB": 7.5}, 0.5, "5 written, 5 received", holds=True)
RESULT = Result("100 MB", {"megabytes": 100}, "logship", KEPT, "1.0", "", (RUN, RUN))
RECORD = Record(
    command="drain",
    about="What it is.",
    compared=("MB/s",),
    date="2026-11-22T01:00:00Z",
    commit="0123456789",
    code="abc",
    dirty=False,
    versions={"python": "3.11.2"},
    machine=Machine(2, 24, "a processor", "x86_64", "6.1", "ext4"),
    results=(RESULT, Result("100 MB", {"megabytes": 100}, "rsyslog", KEPT, absent="not here")),
)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "results", RECORD)

    assert path.name == "drain.json"
    assert read(path.parent) == [RECORD]


def test_the_file_holds_the_spread_of_every_figure(tmp_path: Path) -> None:
    faster = replace(RUN, figures={"MB/s": 170.0, "CPU s/GB": 7.0})
    path = write(tmp_path, replace(RECORD, results=(replace(RESULT, runs=(RUN, faster)),)))

    (result,) = json.loads(path.read_text())["results"]

    assert result["spread"]["MB/s"] == {"median": 160.0, "least": 150.0, "most": 170.0}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="no JSON"),
        pytest.param('{"format": 99}', id="another format"),
        pytest.param('{"format": 1}', id="nothing in it"),
    ],
)
def test_a_file_that_is_no_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "drain.json").write_text(text)

    with pytest.raises(ValueError, match=r"drain\.json: no record"):
        read(tmp_path)


def test_one_run_that_does_not_hold_makes_the_whole_case_void() -> None:
    bad = replace(RUN, holds=False, verdict="5 written, 4 received: 1 missing")

    assert not RESULT.void
    assert (
        replace(RESULT, runs=(RUN, bad, RUN)).void
        == "no result, 1 of 3 runs: 5 written, 4 received: 1 missing"
    )


def test_who_is_absent_says_why() -> None:
    assert RECORD.results[1].void == "absent: not here"


def test_a_spread_leaves_out_runs_without_the_figure() -> None:
    result = replace(RESULT, runs=(RUN, replace(RUN, figures={"MB/s": 130.0})))

    assert result.spread("MB/s") == Spread(140.0, 130.0, 150.0)
    assert result.spread("CPU s/GB") == Spread(7.5, 7.5, 7.5)
    assert result.spread("lines/s") is None
