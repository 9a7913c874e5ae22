"""Results in words: ratios of runs of one turn first, then figures, then what is promised; who has none is named."""

from dataclasses import replace

import pytest

from bench.report import BEGIN, END, reported, tables
from bench.result import Result, Run
from bench.resulttext import markdown, number, plain
from tests.bench.test_result import KEPT, RECORD, RESULT


def runs(*rates: float) -> tuple[Run, ...]:
    return tuple(Run({"MB/s": rate}, 0.5, "fine", holds=True) for rate in rates)


OURS = replace(RESULT, runs=runs(100.0, 150.0, 120.0))
THEIRS = replace(RESULT, system="rsyslog", version="8.1", runs=runs(50.0, 50.0, 30.0))
ABSENT = Result("100 MB", {}, "fluent-bit", KEPT, absent="fluent-bit is not on PATH")
VOID = replace(
    THEIRS,
    system="syslog-ng",
    runs=(Run({"MB/s": 999.0}, 0.5, "5 written, 4 received: 1 missing", holds=False),),
)
ALL = replace(RECORD, results=(OURS, THEIRS, ABSENT, VOID))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (0.0421, "0.0421"), (1.0, "1.00"), (45.67, "45.7"), (1452.3, "1,452")],
)
def test_a_number_has_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_ours_is_compared_with_another_turn_by_turn() -> None:
    row = next(line for line in markdown(ALL, "c.png").splitlines() if "rsyslog" in line)

    assert row == (
        "| 100 MB, rsyslog 8.1 | 3.00 (2.00..4.00) | 50.0 (30.0..50.0) | acked, fsynced, ordered |"
    )


def test_who_is_absent_is_named_in_the_table() -> None:
    assert "| 100 MB, fluent-bit | - | - | absent: fluent-bit is not on PATH |" in markdown(
        ALL, "c.png"
    )
    assert "100 MB, fluent-bit: absent: fluent-bit is not on PATH" in plain(ALL)


def test_a_rate_with_a_line_missing_is_not_shown() -> None:
    for text in (markdown(ALL, "c.png"), plain(ALL)):
        assert "999" not in text
        assert "no result, 1 of 1 runs: 5 written, 4 received: 1 missing" in text


def test_lines_that_came_out_of_order_are_told() -> None:
    run = replace(THEIRS.runs[0], reordered=3)

    text = markdown(replace(RECORD, results=(replace(THEIRS, runs=(run,)),)), "c.png")

    assert "acked, fsynced, ordered; lines out of order" in text


def test_who_has_no_latency_since_lines_came_out_of_order_is_not_compared() -> None:
    run = Run({}, 0.5, "fine", holds=True, reordered=3)
    theirs = replace(THEIRS, runs=(run, run, run))

    row = next(
        line
        for line in markdown(replace(ALL, results=(OURS, theirs)), "c.png").splitlines()
        if "rsyslog" in line
    )

    assert row == "| 100 MB, rsyslog 8.1 | - | - | acked, fsynced, ordered; lines out of order |"


def test_without_a_result_of_ours_nothing_is_compared() -> None:
    void = replace(OURS, runs=VOID.runs)

    assert "| 100 MB, rsyslog 8.1 | - | 50.0" in markdown(
        replace(ALL, results=(void, THEIRS)), "c.png"
    )


def test_where_only_we_are_asked_there_is_nothing_to_compare_with() -> None:
    text = markdown(replace(RECORD, results=(OURS,)), "c.png")

    assert "|  | MB/s | guarantees |" in text


def test_what_is_asked_first_is_told_first() -> None:
    records = [replace(ALL, command=name) for name in ("catchup", "drain", "idle", "steady")]

    text = tables(records)

    places = [text.index(f"**{name}**") for name in ("drain", "steady", "catchup", "idle")]
    assert places == sorted(places)
    assert "![idle](idle.png)" in text


def test_the_readme_tells_what_matters_most() -> None:
    records = [replace(ALL, command=name) for name in ("catchup", "steady", "drain")]

    text = reported(f"{BEGIN}{END}", records)

    assert 0 < text.index("**drain**") < text.index("**steady**")
    assert "**catchup**" not in text


def test_what_is_compared_by_nothing_has_no_picture() -> None:
    assert "![" not in tables([replace(RECORD, compared=(), results=(OURS,))])


def test_absolute_figures_are_labelled_with_the_machine() -> None:
    for text in (markdown(ALL, "c.png"), plain(ALL)):
        assert (
            "2026-11-22, 2 cores, 24 GiB, x86_64, a processor, ext4; load before a run 0.5 to"
            in text
        )
        assert "commit 0123456;" in text
        assert "python 3.11.2" in text


def test_the_readme_gets_a_chart_and_a_table_for_each_command() -> None:
    readme = f"a\n{BEGIN}\nold\n{END}\nb\n"

    text = reported(readme, [ALL])

    assert text.startswith(f"a\n{BEGIN}\n**drain** (`python -m bench.drain`). What it is.\n")
    assert "![drain](../bench/results/drain.png)" in text
    assert text.endswith(f"ordered |\n{END}\nb\n") or text.endswith(f"missing |\n{END}\nb\n")
    assert reported(readme, []) == f"a\n{BEGIN}\nNothing is measured yet.\n{END}\nb\n"


def test_runs_are_counted() -> None:
    fewer = replace(THEIRS, case="400 MB", runs=runs(50.0, 50.0))

    assert "of 3 runs; ratios" in plain(replace(RECORD, results=(OURS,)))
    assert "of 2 to 3 runs; ratios" in plain(replace(RECORD, results=(OURS, fewer)))
    assert "One run each." in plain(replace(RECORD, results=(replace(OURS, runs=runs(1.0)),)))


def test_what_all_cases_share_is_told_once() -> None:
    shared: dict[str, float | str] = {"seconds": 15.0, "line_bytes": 2_000, "line": "a tunnel"}
    cases = [replace(OURS, parameters={"files": files, **shared}) for files in (1, 1_000)]

    assert " Seconds: 15, line bytes: 2,000, line: a tunnel. 2026-" in plain(
        replace(RECORD, results=tuple(cases))
    )
