"""Spark as a program of ours starts and ends it: real programs, real JVMs, real signals."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from receiver.spark.java import Java, find_java
from receiver.spark.jvm import JvmFailed, death_told, gateway_to_jvm, scratch_folder
from receiver.spark.session import local_master, spark_context
from tests.descriptors import held_by
from tests.receiver.apart import apart
from tests.support.ports import free_port
from tests.support.processes import Processes, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

_START = 120  # seconds, on a machine that is busy otherwise; ten on a quiet one

TWICE = """
import signal, sys, time
from receiver.spark.session import spark_context
before = signal.getsignal(signal.SIGINT)
for start in range(2):
    with spark_context("local[*]", slots=2) as sc:
        assert sc.parallelize([1, 2], 2).map(lambda n: n + 1).collect() == [2, 3]
        print(sc.master, sc._jvm.System.getProperty("java.version"), flush=True)
        assert signal.getsignal(signal.SIGINT) is before
        ended = time.monotonic()
    print(time.monotonic() - ended, flush=True)
    assert not [entry for entry in sys.path if "logreceiver-" in entry]
"""

BUSY = """
import time
from dataclasses import replace
from receiver.spark.session import spark_context
with spark_context("local[2]") as sc:
    sc.parallelize([1], 1).map(lambda n: n).collect()
    print("ready", flush=True)
    sc.parallelize([1, 2], 2).map(lambda n: time.sleep(600)).collect()
"""

JVM_DIES = """
import logging, os, signal, sys
from receiver.spark.session import spark_context
logging.basicConfig(level=logging.INFO)
def refuse(path): raise OSError(30, "Read-only file system", path)
with spark_context("local[1]") as sc:
    os.remove = refuse  # of the disk that the scratch folder is on
    os.kill(sc._gateway.proc.pid, signal.SIGKILL)
    try: sc.parallelize([1], 1).map(lambda n: n).collect()
    except Exception as error: print("job failed", flush=True)
with spark_context("local[1]") as sc:
    print(sc.parallelize([1], 1).map(lambda n: n + 1).collect(), flush=True)
"""

DIES_EARLY = """
import os, signal
from collections import UserDict
from pathlib import Path
from receiver.spark.jvm import JvmFailed
from receiver.spark.session import spark_context
class Settings(UserDict):
    # read when the JVM is reached and Spark is not yet started in it
    def keys(self):
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        return super().keys()
try:
    with spark_context("local[1]", conf=Settings(one="more")): print("started")
except JvmFailed as error: print(error)
"""


def reads_spark(pid: int) -> bool:
    """Whether a process has Spark's classes open."""
    try:
        return any(Path(held).name.startswith("spark-core") for held in held_by(pid))
    except OSError:
        return False  # it ended meanwhile


def folders_beside_a_start(place: Path) -> list[Path]:
    """Return what a start finds there and does not remove."""
    with scratch_folder() as own:
        return [folder for folder in place.glob("logreceiver-*") if folder != own]


def run_twice(environment: dict[str, str], folder: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", TWICE],
        env={**os.environ, "TMPDIR": folder, **environment},
        capture_output=True,
        text=True,
        timeout=2 * _START,
        check=False,
    )


@pytest.mark.parametrize(
    ("java", "version"),
    [
        pytest.param({}, "", id="this machine's Java"),
        pytest.param({"PATH": "/nowhere", "JAVA_HOME": ""}, "25.", id="the Java of the wheel"),
    ],
)
def test_spark_starts_twice_in_a_process_and_ends_quickly_cleanly_and_silently(
    java: dict[str, str], version: str
) -> None:
    with tempfile.TemporaryDirectory(prefix="s") as folder:
        done = run_twice(java, folder)
        left = list(Path(folder).iterdir())

    assert (done.stderr, done.returncode) == ("", 0)
    first, first_end, second, second_end = done.stdout.splitlines()
    assert first == second
    assert first.startswith(f"local[2,4] {version}")
    assert max(float(first_end), float(second_end)) < 8, "seconds; one on a quiet machine"
    assert left == []


def test_a_killed_driver_leaves_no_jvm_and_no_python_worker(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        driver = processes.start("driver", [sys.executable, "-c", BUSY])
        wait_until("Spark runs", lambda: "ready" in driver.said(), _START, [driver])
        time.sleep(0.5)
        before = len(driver.tree())

        driver.kill()

        assert before >= 4, "driver, JVM, daemon, worker"
        wait_until("all of them end", lambda: driver.tree() == [], 30)


def test_a_driver_killed_while_its_jvm_starts_leaves_no_jvm_though_the_next_start_cleans_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(prefix="s") as name, Processes(Path(name)) as processes:
        monkeypatch.setattr(tempfile, "tempdir", name)
        driver = processes.start("driver", [sys.executable, "-c", BUSY], {"TMPDIR": name})
        wait_until("a JVM starts", lambda: any(map(reads_spark, driver.tree())), _START, [driver])

        driver.kill()
        with scratch_folder():
            pass

        wait_until("it ends", lambda: driver.tree() == [], 90)
        wait_until("its folder goes", lambda: folders_beside_a_start(Path(name)) == [], 30)


def test_the_death_of_the_jvm_fails_the_job_and_the_next_start_is_whole(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        driver = processes.start("driver", [sys.executable, "-c", JVM_DIES])
        code = driver.wait(_START)

        assert (driver.last_words().splitlines(), code) == (["job failed", "[2]"], 0)
        assert "Traceback" not in driver.log.read_text()
        assert "INFO" not in driver.log.read_text()
        wait_until("workers end", lambda: driver.tree() == [], 30)


def test_the_death_of_the_jvm_while_spark_starts_is_told_in_a_line(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        driver = processes.start("driver", [sys.executable, "-c", DIES_EARLY])
        driver.wait(_START)

        assert driver.last_words() == "Java ended with -9 while Spark was starting; start again"


def test_a_java_that_ends_once_it_is_found_is_told_in_a_line(tmp_path: Path) -> None:
    executable = tmp_path / "java"
    secret = r"\0\0\0\1\0\0\0\4four"  # port 1, where nobody listens
    executable.write_text(
        f"#!/bin/sh\nprintf '{secret}' > part\nmv part $_PYSPARK_DRIVER_CONN_INFO_PATH\nexit 3\n"
    )
    executable.chmod(0o755)

    with (
        pytest.raises(JvmFailed, match="Java ended with 3 while Spark was starting"),
        gateway_to_jvm(Java(executable, "17.0.1", "here"), tmp_path),
    ):
        pass


def started_with(conf: dict[str, str]) -> None:
    with spark_context("local[1]", conf=conf):
        pass


def test_a_wrong_setting_is_told_in_a_line_that_says_whose_it_is() -> None:
    with pytest.raises(
        ConfigurationError, match=r"^Spark does not start: .*abc; look at --spark"
    ) as told:
        apart(started_with, {"spark.executor.memory": "abc"})

    assert "\n" not in str(told.value)


def test_a_disk_that_refuses_while_spark_starts_is_told_in_a_line(tmp_path: Path) -> None:
    gone = Java(tmp_path / "java", "17.0.1", "here")
    with (
        pytest.raises(JvmFailed, match=r"cannot start Spark: .*/java: No such file"),
        gateway_to_jvm(gone, tmp_path),
    ):
        pass

    with subprocess.Popen(["sleep", "60"]) as jvm:
        with pytest.raises(JvmFailed, match="cannot start Spark: No space left"), death_told(jvm):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        jvm.kill()


def test_a_jvm_that_cannot_tell_where_it_is_reached_ends_by_itself(tmp_path: Path) -> None:
    java = find_java(os.environ)
    refused = tmp_path / "java"  # as by a disk that is full
    refused.write_text(f'#!/bin/sh\nulimit -f 0\nexec {java.executable} "$@"\n')
    refused.chmod(0o755)

    with (
        pytest.raises(JvmFailed, match="Java ended with 1 before Spark could start"),
        gateway_to_jvm(replace(java, executable=refused), tmp_path, clock=_four_times_as_fast),
    ):
        pass


def _four_times_as_fast() -> float:
    return 4 * time.monotonic()


def test_ctrl_c_reaches_the_program_and_not_its_jvm(tmp_path: Path) -> None:
    program = BUSY.replace(
        "sc.parallelize([1, 2], 2).map(lambda n: time.sleep(600)).collect()",
        """try: time.sleep(600)
    except KeyboardInterrupt: print(sc.parallelize([20], 1).map(lambda n: n + 1).collect())""",
    )
    with Processes(tmp_path) as processes:
        driver = processes.start("driver", [sys.executable, "-c", program])
        wait_until("Spark runs", lambda: "ready" in driver.said(), _START, [driver])

        os.killpg(driver.pid, signal.SIGINT)
        code = driver.wait(60)

    assert (driver.last_words().splitlines(), code) == (["ready", "[21]"], 0)


@pytest.mark.parametrize(
    ("master", "slots", "expected"),
    [
        ("local", None, "local[1,4]"),
        ("local[3]", None, "local[3,4]"),
        ("local[3]", 5, "local[5,4]"),
        ("local[*]", 7, "local[7,4]"),
        ("local[*]", None, f"local[{len(os.sched_getaffinity(0))},4]"),
        ("local[2,9]", 5, "local[2,9]"),
        ("spark://central:7077", 5, "spark://central:7077"),
    ],
)
def test_a_local_master_tries_a_task_four_times(
    master: str, slots: int | None, expected: str
) -> None:
    assert local_master(master, slots) == expected


def test_sparks_own_pages_are_there_on_request_and_on_loopback_only(tmp_path: Path) -> None:
    script = (
        "import sys, urllib.request\n"
        "from pathlib import Path\n"
        "from receiver.spark.session import spark_context\n"
        "conf = {'spark.ui.enabled': 'true', 'spark.ui.port': sys.argv[1]}\n"
        "with spark_context('local[1]', conf=conf) as spark:\n"
        "    url = f'http://127.0.0.1:{sys.argv[1]}/jobs/'\n"
        "    print(urllib.request.urlopen(url, timeout=20).status)\n"
        "    print(Path('/proc/net/tcp').read_text(), Path('/proc/net/tcp6').read_text())\n"
    )
    port = free_port()

    ended = subprocess.run(
        [sys.executable, "-c", script, str(port)],
        capture_output=True,
        text=True,
        check=True,
        timeout=_START,
    )

    listening = [line.split()[1] for line in ended.stdout.splitlines() if f":{port:04X} " in line]
    assert ended.stdout.startswith("200\n")
    addresses = {entry.partition(":")[0] for entry in listening if entry.endswith(f"{port:04X}")}
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert addresses
