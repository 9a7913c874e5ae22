import sys
from pathlib import Path

import pytest

from bench.cpu import (
    cpu_seconds,
    peak_bytes_of,
    process_seconds,
    resident_bytes,
)
from tests.support.processes import Processes, wait_until

_BUSY = "import time\nwhile time.process_time() < 0.5: pass\n"
_PARENT = f"""
import subprocess, sys, time
subprocess.run([sys.executable, "-c", {_BUSY!r}])
living = subprocess.Popen([sys.executable, "-c", {_BUSY!r} + "print('done', flush=True); time.sleep(60)"],
                          start_new_session=True)
time.sleep(60)
"""


def test_processor_time_counts_living_and_reaped_children(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        parent = processes.start("parent", [sys.executable, "-c", _PARENT])
        wait_until("both children are done", lambda: parent.last_words() == "done", 60, [parent])

        assert 0.9 <= cpu_seconds(parent) < 2.0
        assert resident_bytes(parent) > 5_000_000


def test_a_single_process_is_measured_alone(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        code = f"{_BUSY}print('done', flush=True); time.sleep(60)"
        busy = processes.start("busy", [sys.executable, "-c", code])
        wait_until("it is done", lambda: busy.last_words() == "done", 60, [busy])

        assert process_seconds(busy.pid) >= 0.5
        assert process_seconds(busy.pid) == pytest.approx(cpu_seconds(busy), abs=0.05)
        assert peak_bytes_of(busy.pid) > 5_000_000
