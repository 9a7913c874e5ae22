"""`logreceiver table` with a real Spark: killed, asked for its health, stopped."""

import os
import signal
import sys
from pathlib import Path

import pytest

from nats_logship.app.exits import Exit
from nats_logship.app.faults import VARIABLE
from tests.chaos.program import Supervisor
from tests.chaos.spark import Cluster
from tests.pages import page
from tests.receiver.table.tabled import Tabled
from tests.support.processes import Process, Processes, wait_until

pytestmark = [pytest.mark.nats, pytest.mark.spark]


def start(name: str, tabled: Tabled, processes: Processes, faults: Path, *options: str) -> Process:
    words = ["--server", tabled.url, "--table", tabled.location.uri, "--every", "1s", *options]
    command = [sys.executable, "-m", "receiver", "table", *words]
    return processes.start(name, command, {VARIABLE: str(faults)})


def test_a_writer_goes_on_through_killed_workers_and_drivers_and_ends_in_order(
    tabled: Tabled, processes: Processes, tmp_path: Path
) -> None:
    def has_all() -> bool:
        return tabled.read_by_polars() == tabled.sent

    (faults := tmp_path / "faults").mkdir()
    tabled.publish_some(10, "before")
    (faults / "table_written").touch()  # a worker of Spark dies, and its task is run again
    first = start("first", tabled, processes, faults, "--listen", "127.0.0.1:0")
    listens = lambda: "writing table" in first.read_log()  # noqa: E731
    wait_until("it writes", listens, 150, [first])
    wait_until("the lines are there", has_all, 150, [first])
    assert not [*faults.iterdir()]

    second = start("second", tabled, processes, faults, "--once")
    assert second.wait(150) == Exit.CONFIGURATION
    assert "a table has one writer" in second.read_log()

    (code, health), (_, metrics) = page(first, "/healthz"), page(first, "/metrics")
    assert (code, "30 lines written" in health) == (200, True)
    assert "logreceiver_table_rows_total 30.0" in metrics

    (faults / "table_committed").touch()  # the driver dies
    tabled.publish_some(10, "while it dies")
    assert first.wait(60) == -signal.SIGKILL
    third = start("third", tabled, processes, faults)
    writes = lambda: "writing table" in third.read_log()  # noqa: E731
    wait_until("it goes on", writes, 150, [third])
    wait_until("the lines are there", has_all, 150, [third])
    tabled.has_each_line_once()
    os.kill(third.pid, signal.SIGTERM)
    assert third.wait(30) == Exit.DONE, third.read_log()
    progress = tabled.progress()
    assert progress
    assert (progress.released, progress.streams["LOGS"].next) == (True, 21)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_on_a_cluster_killed_executors_and_workers_lose_and_repeat_nothing(
    tabled: Tabled, processes: Processes, tmp_path: Path
) -> None:
    def write_more(tag: str) -> None:
        tabled.publish_some(10, tag)
        has_all = lambda: tabled.read_by_polars() == tabled.sent  # noqa: E731
        wait_until(f"the lines {tag} are there", has_all, 300)

    cluster = Cluster(processes, tmp_path, "127.0.0.1", (), {})
    spark = ("--master", cluster.url, "--executor-python", sys.executable, "--tasks", "2")
    with Supervisor() as supervisor:  # where executors start slowly, the writer starts again
        writer = start("writer", tabled, processes, tmp_path / "faults", *spark)
        supervisor.take(writer)
        wait_until("it writes", lambda: "writing table" in writer.read_log(), 300, [writer])
        write_more("before")
        first, second = cluster.workers
        for executor in {*first.tree()} - {first.pid}:
            os.kill(executor, signal.SIGKILL)
        write_more("without an executor")
        second.kill_tree()
        write_more("without a worker")
    tabled.has_each_line_once()
