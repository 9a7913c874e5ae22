import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import Process, Processes, ProgramDied, TookTooLong, wait_until

_PARENT = """
import os, subprocess, sys, time
mode, value = sys.argv[1], int(sys.argv[2])
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], **{mode: value})
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("option", "value"),
    [
        pytest.param("process_group", "0", id="child in a process group of its own"),
        pytest.param("start_new_session", "1", id="child in a session of its own"),
    ],
)
def test_children_of_a_killed_program_do_not_outlive_the_with(
    tmp_path: Path, option: str, value: str
) -> None:
    with Processes(tmp_path) as processes:
        parent = processes.start("parent", [sys.executable, "-c", _PARENT, option, value])
        wait_until("child starts", lambda: parent.log.read_bytes().endswith(b"\n"), 30)
        child = int(parent.last_words())
        parent.kill()
        assert parent.tree() == [child]

    wait_until("child is gone", lambda: not _runs(child), 30)


def test_clean_up_happens_when_the_body_raises(tmp_path: Path) -> None:
    def body() -> None:
        with Processes(tmp_path) as processes:
            started.append(processes.start("sleeper", ["sleep", "60"]))
            raise RuntimeError("on purpose")

    started: list[Process] = []

    with pytest.raises(RuntimeError, match="on purpose"):
        body()

    assert not started[0].is_running()


_STRUCK = """
import os, signal, subprocess, sys
from pathlib import Path
from tests.support.processes import Processes

def end(number, frame):
    raise SystemExit(128 + number)

class Struck(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        print(self.pid, flush=True)
        os.kill(os.getpid(), int(sys.argv[1]))

for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, end)
subprocess.Popen = Struck
with Processes(Path(sys.argv[2])) as processes:
    processes.start("sleeper", ["sleep", "60"])
"""


_TOLD = """
import signal, sys, time
from pathlib import Path
from tests.support.processes import Processes

with Processes(Path(sys.argv[1])) as processes:
    with Processes(Path(sys.argv[1])):
        print(processes.start("sleeper", ["sleep", "60"]).pid, flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_clean_up_happens_when_a_signal_comes_that_nobody_else_handles(
    tmp_path: Path, number: int
) -> None:
    with Processes(tmp_path) as processes:
        program = processes.start("told", [sys.executable, "-c", _TOLD, tmp_path])
        wait_until("it works", lambda: program.log.read_bytes().endswith(b"\n"), 30, [program])

        os.kill(program.pid, number)

        assert program.wait(60) == 128 + number
        assert not _runs(int(program.last_words()))


_TIDYING = """
import signal, time
from tests.support.processes import leave

class Tidied:
    def __del__(self):
        print("tidies up", flush=True)
        time.sleep(60)

signal.signal(signal.SIGTERM, leave)
Tidied()
print("goes on", flush=True)
time.sleep(60)
"""


def test_a_signal_that_comes_where_nothing_can_be_raised_comes_again(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        program = processes.start("tidying", [sys.executable, "-c", _TIDYING])
        wait_until("it tidies up", lambda: "tidies up" in program.said(), 30, [program])

        os.kill(program.pid, signal.SIGTERM)

        assert program.wait(30) == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_clean_up_finds_what_had_just_begun_when_a_signal_came(tmp_path: Path, number: int) -> None:
    with Processes(tmp_path) as processes:
        words = [sys.executable, "-c", _STRUCK, str(int(number)), tmp_path]
        program = processes.start("struck", words)

        assert program.wait(60) == 128 + number
        assert not _runs(int(program.last_words()))


def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    processes = Processes(tmp_path)
    stubborn = processes.start("stubborn", [sys.executable, "-c", code])
    wait_until("it is up", lambda: stubborn.last_words() == "up", 30)
    began = time.monotonic()

    processes.end_all(seconds=0.3)

    assert not stubborn.is_running()
    assert time.monotonic() - began < 5


def test_waiting_ends_when_the_program_waited_for_dies(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        program = processes.start("program", ["sh", "-c", "echo port in use; exit 3"])

        with pytest.raises(ProgramDied, match="program ended with 3: port in use"):
            wait_until("it listens", lambda: False, 30, [program])


def test_waiting_is_bounded() -> None:
    with pytest.raises(TookTooLong, match="the moon"):
        wait_until("the moon", lambda: False, 0.1)


def test_a_program_can_be_killed_and_started_again(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        program = processes.start("sleeper", ["sleep", "60"])
        first = program.pid

        program.kill()
        program.start()

        assert program.is_running()
        assert program.pid != first


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_a_program_started_in_sessions_of_its_own_goes_with_it(tmp_path: Path) -> None:
    starts = (
        "import subprocess, time\n"
        "for _ in range(3):\n"
        "    subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print('started', flush=True)\n"
        "time.sleep(600)\n"
    )
    with Processes(tmp_path) as processes:
        head = processes.start("head", [sys.executable, "-c", starts])
        wait_until("it has started them", lambda: "started" in head.said(), 60, [head])
        children = all_children(head.pid)

    assert len(children) == 3
    assert not [pid for pid in children if is_alive(pid)]


def all_children(parent: int) -> list[int]:
    found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in found]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
