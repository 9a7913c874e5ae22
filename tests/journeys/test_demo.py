"""What a stranger runs first works, and leaves nothing running."""

import re
import sys
from pathlib import Path

import pytest

from tests.support.processes import Processes, wait_until

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(540)]


def test_the_demo_kills_every_program_once_and_finds_every_line(
    processes: Processes, tmp_path: Path
) -> None:
    place = tmp_path / "demo"
    place.mkdir()

    demo = processes.start(
        "demo", [sys.executable, "-u", "-m", "bench.demo"], {"TMPDIR": str(place)}
    )
    code = demo.wait(500)

    words = demo.log.read_text("utf-8")
    assert code == 0, words
    assert sorted(re.findall(r"kill -9 (\S+);", words)) == [
        "logbroker",
        "logreceiver-p0",
        "logreceiver-p1",
        "logshipper-db01.example.net",
        "logshipper-mail01",
        "logshipper-web01",
    ]
    assert len(re.findall(r"^\S+ +(\d+) +\1 +0 +0 +0 +0 +yes$", words, re.MULTILINE)) == 3, words
    assert demo.tree() == []


@pytest.mark.long  # no promise of the product
def test_a_demo_that_is_interrupted_leaves_no_program_behind(
    processes: Processes, tmp_path: Path
) -> None:
    demo = processes.start(
        "demo", [sys.executable, "-u", "-m", "bench.demo"], {"TMPDIR": str(tmp_path)}
    )
    wait_until("it plays", lambda: "logreceiver, twice" in demo.said(), 150, [demo])

    demo.tree()  # so that programs in sessions of their own are remembered
    code = demo.stop(30)

    assert code == 128 + 15
    wait_until(
        "nothing of it lives", lambda: not demo.tree(), 30
    )  # a JVM that was killed may take a moment
