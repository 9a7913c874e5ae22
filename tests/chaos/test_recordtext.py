"""The record in the README: sums over runs, of which none is left out."""

from dataclasses import replace

import pytest

from bench.readme import exchanged
from tests.chaos.record import Entry
from tests.chaos.recordtext import BEGIN, END, told

LINES = dict.fromkeys(("missing", "repeated", "reordered", "torn", "altered", "foreign"), 0)
PASSED = Entry(
    suite="logship",
    date="2026-11-21T20:00:00Z",
    seed=7,
    shape={"topology": "single", "receivers": "alone"},
    seconds=1800,
    strokes=3,
    faults={"kill-shipper": 2, "full-broker": 1},
    not_struck={"kill-jvm": 1},
    waits=(1.0, 2.0, 30.5),
    longest={"kill-shipper": 2.0, "full-broker": 30.5},
    lines={"written": 70_000, **LINES},
    lineage="known",
)
FAILED = replace(
    PASSED,
    date="2026-11-22T01:00:00Z",
    seed=8,
    shape={"topology": "cluster", "receivers": "spark", "secured": True},
    lines={"written": 2_000, **LINES, "missing": 3},
    findings=("web|01: 3 missing",),
    mended_by="0123456789abcdef",
)
FAMILIES = {"processes": ["kill-shipper", "kill-jvm"], "disks": ["full-broker"]}


def test_failed_runs_stay_beside_those_that_passed_with_what_mended_them() -> None:
    text = told([PASSED, FAILED], FAMILIES)

    assert "| passed | 1 | 0.5 | 3 | 70,000 | 0 | 0 | 0 | 0 | 0 | 0 |\n" in text
    assert "| failed | 1 | 0.5 | 3 | 2,000 | 3 | 0 | 0 | 0 | 0 | 0 |\n" in text
    assert "| 2026-11-22T01:00:00Z | 8 | cluster, spark | web/01: 3 missing | `0123456` |\n" in text


def test_faults_are_counted_by_family_kind_and_topology() -> None:
    more = replace(FAILED, faults={"kill-shipper": 5, "renamed": 1}, longest={"kill-shipper": 9.5})

    text = told([PASSED, more], FAMILIES)

    assert "| processes | 2 | 5 | 9.5 | kill-shipper 7 (9.5 s) |\n" in text
    assert "| disks | 1 | 0 | 30.5 | full-broker 1 (30.5 s) |\n" in text
    assert "| others | 0 | 1 | 0 | renamed 1 |\n" in text


def test_waits_are_told_by_nearest_ranks() -> None:
    text = told([PASSED], FAMILIES)

    assert "within 2 s (median), 30.5 s (99 %), 30.5 s (the longest)" in text


def test_code_that_is_no_commit_is_said_to_be_none() -> None:
    text = told([PASSED, replace(PASSED, dirty=True), replace(PASSED, lineage="unknown")], FAMILIES)

    assert "2 of them ran code that is no commit of this project" in text
    assert "no commit" not in told([PASSED], FAMILIES)


def test_what_was_destroyed_is_told_beside_what_was_reported() -> None:
    text = told([replace(PASSED, destroyed=5_000, reported=5_000)], FAMILIES)

    assert "| passed, and told all that was destroyed on purpose | 1 |" in text
    assert "5,000 bytes were destroyed on purpose, 5,000 told as lost." in text


def test_suites_are_compared_by_what_came_of_the_same_schedule() -> None:
    ours = replace(PASSED, contest="a")
    theirs = replace(FAILED, suite="rsyslog", contest="a")

    text = told([theirs, ours, PASSED], FAMILIES)

    assert "2 runs, 2026-11-21: " in text
    assert text.index("| logship | 1 | 0.5 |") < text.index("| rsyslog | 1 | 0.5 |")
    assert "failed" not in text


def test_the_record_goes_where_its_place_is() -> None:
    readme = f"a\n{BEGIN}\nold\n{END}\nb\n"

    assert exchanged(readme, "new\n", BEGIN, END) == f"a\n{BEGIN}\nnew\n{END}\nb\n"
    with pytest.raises(ValueError, match="no place"):
        exchanged("a\n", "new\n", BEGIN, END)
