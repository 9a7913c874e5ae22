import os
import subprocess
import sys
import time
from pathlib import Path

import broker.server.server

LEASH = Path(broker.server.server.__file__).with_name("leash.py")


def test_a_program_does_not_start_when_its_parent_is_gone_already(tmp_path: Path) -> None:
    mark = tmp_path / "started"

    ended = subprocess.run([sys.executable, "-I", "-S", LEASH, "1", "/bin/touch", mark])

    assert ended.returncode == 1
    assert not mark.exists()


def test_a_program_takes_over_the_process_and_its_exit_code() -> None:
    leash = [sys.executable, "-I", "-S", LEASH, str(os.getpid())]

    ended = subprocess.run([*leash, "/bin/sh", "-c", "echo $$; exit 7"], capture_output=True)

    assert ended.returncode == 7


def test_a_program_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    parent = (
        "import os, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-I', '-S', sys.argv[1], str(os.getpid()),"
        " '/bin/sh', '-c', f'echo $$ > {sys.argv[2]}; exec sleep 60']).wait()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent, LEASH, note])
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
