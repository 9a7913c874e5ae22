"""What ends the programs of a test ends no others, also when Linux uses a number again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_AS_ROOT = () if os.geteuid() == 0 else ("--map-root-user",)
_CODE = """
import os, subprocess, sys, time
from pathlib import Path
from tests.support.processes import Processes

folder, last = Path(sys.argv[1]), Path("/proc/sys/kernel/ns_last_pid")
with Processes(folder) as programs:
    ours = programs.start("ours", ["true"])
    ours.wait(60)
    time.sleep(2 / os.sysconf("SC_CLK_TCK"))  # ticks of the clock distinguish starts
    while True:
        last.write_text(str(ours.pid - 1))
        other = subprocess.Popen(["sleep", "60"], start_new_session=True)
        if other.pid == ours.pid:
            break
        other.kill()
    programs.end_all()
    print(other.poll())
    other.kill()
"""


def test_a_program_with_the_number_of_one_that_has_ended_is_left_alone(tmp_path: Path) -> None:
    within = ("unshare", "--pid", "--fork", "--mount-proc", *_AS_ROOT)
    if subprocess.run([*within, "true"], capture_output=True).returncode:
        pytest.skip("no process namespaces here")

    run = [*within, sys.executable, "-c", _CODE, str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)

    assert done.stdout == "None\n", done.stderr
