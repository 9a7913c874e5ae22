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
    words = [sys.executable, "-u", "-m", "bench.demo"]
    demo = processes.start("demo", words, {"TMPDIR": str(tmp_path)})

    assert demo.wait(500) == 0, demo.read_log()
    assert len(set(re.findall(r"kill -9 (\S+);", demo.read_log()))) == 6
    perfect = re.findall(r"^\S+ +(\d+) +\1 +0 +0 +0 +0 +yes$", demo.read_log(), re.MULTILINE)
    assert len(perfect) == 3, demo.read_log()
    assert demo.tree() == []
