"""As test_measured.py, the commands that take longer: `make test-long`."""

from collections.abc import Iterator

import pytest

from tests.bench.measuring import Measured, measuring

pytestmark = [
    pytest.mark.journey,
    pytest.mark.nats,
    pytest.mark.spark,
    pytest.mark.timeout(540),
    pytest.mark.long,
]

_RUNS = {
    "restart": ("--rate", "100"),
    "wan": ("--megabytes", "2", "--milliseconds", "20", "--system", "logship"),
    "catchup": ("--megabytes", "2", "--rate", "500", "--system", "nats-py"),
    "partitions": ("--partitions", "2", "--megabytes", "2"),
    "replay": ("--megabytes", "2"),
    "soak": ("--rate", "500", "--minutes", "0.05", "--system", "nats-py"),
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    with measuring(tmp_path_factory.mktemp("measured"), _RUNS) as commands:
        yield commands


def test_each_of_our_programs_is_killed_and_no_line_is_lost(measured: Measured) -> None:
    (ours,) = measured.record("restart").results

    assert not ours.void
    figures = ours.runs[0].figures
    assert min(figures[f"s {name}"] for name in ("agent", "broker", "receiver")) > 0
    assert (figures["missing"], figures["repeated"]) == (0, 0)


def test_a_backlog_of_ours_drains_from_far_away(measured: Measured) -> None:
    (ours,) = measured.record("wan").results

    assert not ours.void
    assert ours.runs[0].verdict.startswith("10000 written, 10000 received")


def test_live_lines_come_while_an_agent_catches_up(measured: Measured) -> None:
    (loop,) = measured.record("catchup").results

    assert not loop.void
    assert 0 < loop.runs[0].figures["live p50 s"] <= loop.runs[0].figures["live p99 s"]


@pytest.mark.parametrize("name", ["partitions", "replay"])
def test_what_is_asked_of_us_alone(measured: Measured, name: str) -> None:
    (ours,) = measured.record(name).results

    assert not ours.void
    assert ours.runs[0].verdict.startswith("10000 written, 10000 received")


def test_who_writes_a_replay_is_charged_for_it(measured: Measured) -> None:
    (ours,) = measured.record("replay").results

    figures = ours.runs[0].figures
    parts = [figures[f"CPU s/GB {name}"] for name in ("broker", "replay")]
    assert min(parts) > 0
    assert figures["CPU s/GB"] == pytest.approx(sum(parts))


def test_memory_is_looked_at_while_lines_come(measured: Measured) -> None:
    (loop,) = measured.record("soak").results

    assert not loop.void
    figures = loop.runs[0].figures
    assert figures["RSS MiB at most"] >= figures["RSS MiB at last"] > 0
