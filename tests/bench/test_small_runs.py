"""Every measurement runs from its beginning to its table, with next to nothing to measure; all of them at a time."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.processes import Process, Processes

pytestmark = pytest.mark.journey

_RUNS = {
    "broker": (
        *("--size", "1", "--runs", "1", "--memory", "512MiB"),
        *("--part", "provisioned", "--part", "sync", "--part", "memory"),
    ),
    "live": ("--files", "2", "--rate", "200", "--per-write", "5", "--seconds", "2"),
    "receive": ("--size", "2", "--runs", "1", "--case", "zstd"),
    "receive_live": (
        *("--partitions", "1", "--rate", "200", "--seconds", "2", "--silent", "0.2"),
        *("--starts", "0"),
    ),
    "rights": ("--size", "1", "--runs", "1", "--case", "256 KiB"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Process]]:
    with Processes(tmp_path_factory.mktemp("bench")) as processes:
        yield {
            name: processes.start(name, [sys.executable, "-m", f"bench.{name}", *options])
            for name, options in _RUNS.items()
        }


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("broker", "512MiB, GOGC=400, 1 x 2 MiB"),
        ("live", "5 lines a write"),
        ("receive", "zstd, 2 MB"),
        ("receive_live", "1 partition"),
        ("rights", "256 KiB"),
    ],
)
def test_a_measurement_ends_with_its_table(runs: dict[str, Process], name: str, row: str) -> None:
    assert runs[name].wait(300) == 0, runs[name].last_words()

    assert f"\n{row}  " in runs[name].said()


def test_a_line_that_cannot_be_laid_is_said_in_one(processes: Processes, tmp_path: Path) -> None:
    bench = processes.start(
        "wan", [sys.executable, "-m", "bench.wan"], {"PATH": os.fspath(tmp_path)}
    )

    assert bench.wait(180) == 1
    assert bench.last_words().startswith("cannot lay a line here")
    assert "\n" not in bench.said()
