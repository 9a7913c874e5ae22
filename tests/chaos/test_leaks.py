"""The leak check of fault runs: what a process takes for work is no leak, what it keeps is one."""

import sys

import pytest

from tests.chaos.leaks import Leaks
from tests.support.processes import Process, Processes, wait_until

_POOL = """
import pathlib, signal, sys, threading

def idle():
    pathlib.Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("idle-worker")
    threading.Event().wait(float(sys.argv[1]))

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("waits", flush=True)
signal.sigwait([signal.SIGTERM])
for _ in range(60):
    threading.Thread(target=idle, daemon=True).start()
print("works", flush=True)
signal.sigwait([signal.SIGTERM])
"""


def start_pool(processes: Processes, idles: float) -> Process:
    """Start a program which, asked by SIGTERM, makes 60 threads that end after so many seconds."""
    pool = processes.start("pool", [sys.executable, "-c", _POOL, str(idles)])
    wait_until("it waits", lambda: "waits" in pool.read_log(), 60, [pool])
    return pool


@pytest.mark.parametrize(
    ("idles", "rested", "found"),
    [(2.0, 20.0, ""), (600.0, 2.0, "holds 61 threads (60 idle-worker, 1 python")],
)
def test_threads_are_found_only_if_a_process_at_rest_keeps_them(
    processes: Processes, idles: float, rested: float, found: str
) -> None:
    leaks = Leaks(settled=0.0, rested=rested)
    pool = start_pool(processes, idles)
    leaks.inspect()
    pool.terminate()
    wait_until("it works", lambda: "works" in pool.read_log(), 60, [pool])

    findings = [one for one in leaks.find_growth(0) if f"process {pool.pid} " in one]

    assert len(findings) == bool(found)
    assert all(found in one for one in findings)
