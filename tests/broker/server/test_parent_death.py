import os
import subprocess
import sys
import time
from pathlib import Path

import broker.server.parent_death

SCRIPT = Path(broker.server.parent_death.__file__)


def test_a_program_does_not_start_when_its_parent_is_gone_already(tmp_path: Path) -> None:
    mark = tmp_path / "started"

    ended = subprocess.run([sys.executable, "-I", "-S", SCRIPT, "1", "/bin/touch", mark])

    assert ended.returncode == 1
    assert not mark.exists()


def test_a_program_takes_over_the_process_and_its_exit_code() -> None:
    words = [sys.executable, "-I", "-S", SCRIPT, str(os.getpid())]

    ended = subprocess.run([*words, "/bin/sh", "-c", "echo $$; exit 7"], capture_output=True)

    assert ended.returncode == 7


def test_a_program_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    parent = (
        "import os, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-I', '-S', sys.argv[1], str(os.getpid()),"
        " '/bin/sh', '-c', f'echo $$ > {sys.argv[2]}; exec sleep 60']).wait()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent, SCRIPT, note])
    deadline = time.monotonic() + 40
    while not (note.exists() and note.read_text("ascii").strip()):
        assert time.monotonic() < deadline
        time.sleep(0.01)

    process.kill()
    process.wait()

    child = Path("/proc") / note.read_text("ascii").strip() / "comm"
    while _runs(child, "sleep"):
        assert time.monotonic() < deadline, "the program outlived its parent"
        time.sleep(0.01)


def _runs(comm: Path, name: str) -> bool:
    try:
        return name in comm.read_text("ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False
