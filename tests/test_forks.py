"""What is forked finds what a program finds that Python has just started."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.forks import Fork

PROGRAM = """
import os, signal, sys, threading
found = [n for n in signal.valid_signals() if signal.getsignal(n) is not signal.SIG_DFL]
print(sys.argv, __name__, os.getcwd(), sys.stdin.read(), sorted(map(int, found)))
print(sorted(os.environ.items() - {("LC_CTYPE", "C.UTF-8")}))  # Python's own, in a locale of C
descriptors = sorted(map(int, os.listdir("/proc/self/fd")))[:-1]
print(os.getsid(0) == os.getpid(), threading.active_count(), [*range(3)] == descriptors)
print("error", file=sys.stderr)
sys.exit(7)
"""


def test_a_fork_finds_what_a_program_finds_that_was_just_started(tmp_path: Path) -> None:
    environment = {**os.environ, "OF_THIS": "start"}
    arguments = (PROGRAM, "a", "b c")
    how = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    command = [sys.executable, "-c", *arguments]
    started = subprocess.run(command, env=environment, cwd=tmp_path, start_new_session=True, **how)

    with (tmp_path / "out").open("wb") as out, (tmp_path / "error").open("wb") as error:
        fork = Fork("shipper", *arguments, env=environment, cwd=tmp_path, stdout=out, stderr=error)
    assert fork.wait(60) == started.returncode == 7
    assert (tmp_path / "out").read_text() == started.stdout
    assert (tmp_path / "error").read_text() == started.stderr


def test_a_fork_is_killed_and_waited_for_as_a_program_is() -> None:
    fork = Fork("shipper", "import time; time.sleep(60)", env=os.environ)
    assert fork.poll() is None

    fork.send_signal(signal.SIGKILL)

    assert fork.wait(10) == fork.poll() == -signal.SIGKILL
