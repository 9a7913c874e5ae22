import sys
from pathlib import Path

from bench.cpu import (
    cpu_seconds,
    named,
    peak_bytes,
    peak_bytes_of,
    process_seconds,
    resident_bytes,
    user_and_system,
)
from bench.processes import Processes, wait_until

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


def test_a_program_is_found_among_what_was_started_and_measured_alone(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        parent = processes.start("parent", ["sh", "-c", "sleep 60; echo never"])
        wait_until("it has started", lambda: named(parent, "sleep") is not None, 60, [parent])

        pid = named(parent, "sleep")

        assert pid not in (None, parent.pid)
        assert named(parent, "nothing") is None


def test_the_clock_of_a_process_agrees_with_its_ticks(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        code = f"{_BUSY}print('done', flush=True); time.sleep(60)"
        busy = processes.start("busy", [sys.executable, "-c", code])
        wait_until("it is done", lambda: busy.last_words() == "done", 60, [busy])

        assert process_seconds(busy.pid) >= 0.5
        assert abs(process_seconds(busy.pid) - sum(user_and_system(busy.pid))) <= 0.03
        assert peak_bytes_of(busy.pid) == peak_bytes(busy) > 5_000_000
