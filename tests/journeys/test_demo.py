"""What a stranger runs first works, and leaves nothing running."""

import re
import sys
from pathlib import Path

import pytest

from tests.support.processes import Processes

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(540)]


@pytest.mark.long  # no promise of the product
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
