"""A table in an object store whose answers are lost."""

import re
import sys
from dataclasses import replace

import pytest

from receiver.table.location import Location
from tests.receiver.table.tabled import Tabled
from tests.support.processes import Process, Processes, wait_until

pytestmark = [pytest.mark.nats, pytest.mark.filterwarnings("ignore")]


def start_deaf(processes: Processes, store: Location, *texts: str) -> tuple[Location, Process]:
    options = dict(store.options)
    address = options["AWS_ENDPOINT_URL"].removeprefix("http://")
    command = [sys.executable, "-m", "tests.receiver.table.deaf", address, *texts]
    deaf = processes.start("deaf", command)
    wait_until("it listens", lambda: "port" in deaf.read_log(), 60, [deaf])
    [port] = re.findall(r"port ([0-9]+)", deaf.read_log())
    options["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
    return replace(store, options=tuple(options.items())), deaf


@pytest.mark.parametrize(
    ("method", "part"),
    [("PUT", "lines/_delta_log/00000000000000000002.json"), ("PUT", "lines/date")],
)
def test_a_lost_answer_costs_no_line_and_repeats_none(
    tabled: Tabled, s3: Location, processes: Processes, method: str, part: str
) -> None:
    tabled.location, deaf = start_deaf(processes, s3, method, part, "1")
    for _ in range(2):
        tabled.publish_some(5)
        tabled.write()
    tabled.location = s3

    assert "lost" in deaf.read_log(), "no answer was lost"
    tabled.has_each_line_once()
    progress = tabled.progress()
    assert progress
    assert progress.streams["LOGS"].next == 11
