"""Commands that compare systems run from their beginning to the README, with next to nothing to measure."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import report
from tests.bench.measuring import Measured, measuring

pytestmark = [
    pytest.mark.journey,
    pytest.mark.nats,
    pytest.mark.spark,
    pytest.mark.timeout(540),
]

_RUNS = {
    "drain": ("--megabytes", "2", "--system", "cp"),
    "steady": ("--rate", "200", "--seconds", "1", "--system", "nats-py"),
    "idle": ("--files", "2", "--seconds", "0.2", "--settle", "0.2"),
    "line_length": ("--bytes", "50", "--bytes", "100000", "--megabytes", "1", "--system", "cp"),
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    with measuring(tmp_path_factory.mktemp("measured"), _RUNS) as commands:
        yield commands


def test_a_backlog_drains_through_us_and_is_copied(measured: Measured) -> None:
    ours, copy = measured.record("drain").results

    assert (ours.void, copy.void) == ("", "")
    assert ours.runs[0].verdict.startswith("10000 written, 10000 received: 0 missing")
    figures = ours.runs[0].figures
    assert figures["MB/s"] > 0
    assert figures["CPU s/GB"] == pytest.approx(
        sum(figures[f"CPU s/GB {name}"] for name in ("agent", "broker", "receiver"))
    )
    assert copy.runs[0].figures["MB/s"] > ours.runs[0].figures["MB/s"]


def test_lines_at_a_steady_rate_have_a_latency(measured: Measured) -> None:
    (loop,) = measured.record("steady").results

    assert not loop.void
    figures = loop.runs[0].figures
    assert 0 < figures["p50 ms"] <= figures["p99 ms"] <= figures["max ms"]
    assert 50 < figures["lines/s"] < 300


def test_files_to_which_nothing_is_written_cost_memory_and_a_start(measured: Measured) -> None:
    (ours,) = measured.record("idle").results

    assert not ours.void
    figures = ours.runs[0].figures
    assert min(figures["RSS MiB agent"], figures["start CPU s"]) > 0
    shares = [figures[f"CPU % {name}"] for name in ("agent", "broker", "receiver")]
    assert figures["CPU %"] == pytest.approx(sum(shares))


def test_lines_may_be_short_and_long(measured: Measured) -> None:
    results = measured.record("line_length").results

    assert [(one.case, one.void) for one in results] == [("50 B", ""), ("100,000 B", "")]
    assert results[0].runs[0].verdict.startswith("20000 written")


def test_a_host_far_away_is_measured_or_it_is_said_why_not(tmp_path: Path) -> None:
    distances = ("--milliseconds", "20", "--milliseconds", "50")
    words = ("--megabytes", "1", *distances, "--system", "nats-py")
    with measuring(tmp_path, {"wan": words}) as far:
        if far.commands["wan"].wait(300):
            said = far.commands["wan"].last_words()
            assert said.startswith("cannot lay a line here")
            assert "\n" not in said
            return
        near, loop = far.record("wan").results

    assert (near.case, loop.case) == ("20 ms", "50 ms")
    assert not near.void
    assert not loop.void
    assert loop.runs[0].verdict.startswith("5000 written, 5000 received")
    assert 0 < loop.runs[0].figures["MB/s"] < 1 / 0.05


def test_what_was_measured_is_drawn_and_told(measured: Measured, tmp_path: Path) -> None:
    for name in _RUNS:
        measured.record(name)
    readme, page = tmp_path / "README.md", tmp_path / "benchmarks.md"
    for path in (readme, page):
        path.write_text(f"a\n{report.BEGIN}\n{report.END}\n")

    told = CliRunner().invoke(
        report.main,
        ["--results", str(measured.results), "--readme", str(readme), "--page", str(page)],
    )

    assert told.output == f"{len(_RUNS)} results\n"
    assert (measured.results / "drain.png").read_bytes().startswith(b"\x89PNG")
    assert "| 200 lines/s, nats-py" in page.read_text()


def test_a_fleet_of_live_hosts_has_latencies(tmp_path: Path) -> None:
    words = ("--hosts", "5", "--streams", "2", "--slow", "0", "--seconds", "6")
    with measuring(tmp_path, {"fleet": words}) as commands:
        (ours,) = commands.record("fleet").results

    assert not ours.void
    figures = ours.runs[0].figures
    assert 0 < figures["ack p50 ms"] <= figures["file p50 ms"] <= figures["file p99 ms"]
