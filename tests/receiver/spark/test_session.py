"""Spark as a program of ours starts and ends it: real programs, real JVMs, real signals."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from receiver.spark.java import scratch_folder
from receiver.spark.session import local_master, spark_context
from tests.descriptors import held_by
from tests.receiver.apart import apart
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
from broker.app.exits import OperatorError
from receiver.spark.session import spark_context
class Settings(UserDict):
    # read when the JVM is reached and Spark is not yet started in it
    def keys(self):
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        return super().keys()
try:
    with spark_context("local[1]", conf=Settings(one="more")): print("started")
except OperatorError as error: print(error)
"""


def reads_spark(pid: int) -> bool:
    """Whether a process has Spark's classes open."""
    try:
        return any(Path(held).name.startswith("spark-core") for held in held_by(pid))
    except OSError:
        return False  # it ended meanwhile


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
        pytest.param({}, "", id="this machine's Java", marks=pytest.mark.long),
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
        with scratch_folder() as own:
            assert list(Path(name).glob("logreceiver-*")) == [own]


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


def started_with(conf: dict[str, str]) -> None:
    with spark_context("local[1]", conf=conf):
        pass


def test_a_wrong_setting_is_told_in_a_line_that_says_whose_it_is() -> None:
    with pytest.raises(
        ConfigurationError, match=r"^Spark does not start: .*abc; look at --spark"
    ) as told:
        apart(started_with, {"spark.executor.memory": "abc"})

    assert "\n" not in str(told.value)


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
