"""Start, ports and end of Spark: real programs, real JVMs, real signals."""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
import pytest

from receiver.spark.jvm import scratch_folder
from receiver.spark.session import pack_for_executors
from tests.descriptors import held_by
from tests.support.processes import Processes, proc, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

_START = 120  # seconds, on a machine that is busy otherwise; ten on a quiet one

ONCE = """
import sys, time
from receiver.spark.session import spark_context
with spark_context("local[*]", slots=2) as sc:
    assert sc.parallelize([1, 2], 2).map(lambda n: n + 1).collect() == [2, 3]
    print(sc.master, sc._jvm.System.getProperty("java.version"))
    assert not {"numpy", "pyarrow"} & set(sys.modules), "they take 40 MiB"
    ended = time.monotonic()
print(time.monotonic() - ended)
"""

BUSY = """
import time
from receiver.spark.session import spark_context
with spark_context("local[2]") as sc:
    sc.parallelize([1], 1).map(lambda n: n).collect()
    print("ready", flush=True)
    sc.parallelize([1, 2], 2).map(lambda n: time.sleep(600)).collect()
"""


def reads_spark(pid: int) -> bool:
    """Whether a process has Spark's classes open."""
    try:
        return any(Path(held).name.startswith("spark-core") for held in held_by(pid))
    except OSError:
        return False  # it ended meanwhile


def test_spark_runs_on_the_java_of_the_wheel_and_ends_quickly(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="s") as folder, Processes(tmp_path) as processes:
        alone = {"TMPDIR": folder, "PATH": "/nowhere", "JAVA_HOME": ""}
        driver = processes.start("driver", [sys.executable, "-c", ONCE], alone)

        assert driver.wait(2 * _START) == 0
        left = list(Path(folder).iterdir())

    started, seconds = driver.read_log().splitlines()  # and not a word more
    assert started.startswith("local[2,4] 25.")
    assert float(seconds) < 30, "one on a quiet machine"
    assert left == []


def test_a_killed_daemon_leaves_no_worker_and_a_killed_driver_nothing(tmp_path: Path) -> None:
    program = BUSY.replace(
        "time.sleep(600)",
        "(os.write(1, b'works %d %d\\n' % (os.getpid(), os.getppid())), time.sleep(600))",
    ).replace("local[2]", "local[2,4]")  # a task is tried again
    with Processes(tmp_path) as processes:
        driver = processes.start("driver", [sys.executable, "-c", f"import os\n{program}"])
        works = lambda: [  # noqa: E731
            line for line in driver.read_log().splitlines() if line.startswith("works")
        ]
        wait_until("both tasks run", lambda: len(works()) == 2, _START, [driver])
        daemon = int(works()[0].split()[2])
        workers = {int(line.split()[1]) for line in works()}

        os.kill(daemon, signal.SIGKILL)

        wait_until("its workers end", lambda: not workers & {*driver.tree()}, 30)
        wait_until("they are replaced", lambda: len(works()) == 4, _START, [driver])

        driver.kill()

        wait_until("all of them end", lambda: driver.tree() == [], 30)


def test_a_driver_killed_as_its_jvm_starts_leaves_no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
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


PREPARE = """
import os, sys
sys.prefix = sys.argv[1]
from receiver.spark.session import prepare
from receiver.spark.java import find_java
print(prepare(find_java(os.environ)))
"""
START = """
import sys
sys.prefix = sys.argv[1]
from pathlib import Path
from receiver.spark.session import spark_context
with spark_context("local[1]") as spark:
    print(spark.parallelize([1], 1).map(lambda n: n + 1).collect())
    print(Path(f"/proc/{spark._gateway.proc.pid}/maps").read_text())
"""


def run(script: str, prefix: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", script, str(prefix)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=330)


@pytest.mark.long
def test_prepared_classes_are_used_by_the_next_start(tmp_path: Path) -> None:
    path = Path(run(PREPARE, tmp_path).stdout.strip())
    (path.parent / f"spark-00000000{path.name[len('spark-12345678') :]}").touch()  # an older one
    assert Path(run(PREPARE, tmp_path).stdout.strip()) == path
    second = run(START, tmp_path)

    assert [*path.parent.iterdir()] == [path]
    assert path.is_relative_to(tmp_path)
    assert second.stdout.startswith("[2]\n")
    assert str(path) in second.stdout
    assert second.stderr == ""


def test_executors_get_all_packages_that_tasks_import(tmp_path: Path) -> None:
    executor = tmp_path / "executor"
    shutil.unpack_archive(pack_for_executors(tmp_path), executor)
    (executor / "pyspark").symlink_to(Path(pyspark.__file__).parent)

    found = f"import sys; sys.path.insert(0, {str(executor)!r})"
    imported = f"{found}; import receiver.consume.task; print(receiver.__file__)"
    task = [sys.executable, "-I", "-S", "-c", imported]
    said = subprocess.run(task, capture_output=True, text=True, timeout=60, check=False)
    assert said.stdout == f"{executor}/receiver/__init__.py\n", said.stderr


_LISTENING = "0A"
_LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
_REQUEST, _FAILURE = 3, 5  # kinds of messages: org.apache.spark.network.protocol.Message.Type

SECRETS = """
import json, sys, time
from receiver.spark.session import spark_context
with spark_context("local[1]") as sc:
    sc.parallelize([1], 1).map(lambda n: n).collect()
    gateway = sc._gateway
    secrets = [gateway.gateway_parameters.auth_token]
    hadoop = sc._jvm.org.apache.hadoop
    kept = hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
    secrets.append((kept.getSecretKey(hadoop.io.Text("sparkCookie")) or b"none").decode())
    report = {"jvm": gateway.proc.pid, "gateway": gateway.gateway_parameters.port}
    settings = dict(sc.getConf().getAll())
    print(json.dumps(report | {"secrets": secrets, "settings": settings}), flush=True)
    time.sleep(600)
"""


def listening(pid: int) -> dict[int, str]:
    """Return the TCP ports that a process listens on, and at which address each."""
    own = {held[8:-1] for held in held_by(pid) if held.startswith("socket:[")}
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTENING and inode in own:
                address, port = local.split(":")
                found[int(port, 16)] = address
    return found


def exchange(port: int, message: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(message)
        return connection.recv(65536)


def open_blocks() -> bytes:
    """Return the message by which an executor asks a block manager for a block."""
    words = [struct.pack("!i", len(word)) + word for word in (b"app", b"driver", b"rdd_0_0")]
    body = bytes([0]) + words[0] + words[1] + struct.pack("!i", 1) + words[2]
    head = struct.pack("!bqi", _REQUEST, 1, len(body))
    return struct.pack("!q", 8 + len(head) + len(body)) + head + body


def test_ports_of_a_local_spark_need_a_secret_that_nobody_sees(processes: Processes) -> None:
    driver = processes.start("driver", [sys.executable, "-c", SECRETS])
    wait_until("Spark runs", lambda: driver.read_log().endswith("}}"), _START, [driver])
    report = json.loads(driver.read_log().splitlines()[0])

    ports = listening(report["jvm"])
    lines = [words for pid in driver.tree() if (words := proc(pid, "cmdline"))]

    python = [pid for pid in driver.tree() if pid != report["jvm"]]
    assert not [port for pid in python for port in listening(pid)]
    assert set(ports.values()) <= _LOOPBACK
    assert len(ports) == 3, "of py4j, of the driver and of its block manager"
    assert exchange(report["gateway"], b"m\nd\no0\ne\n").startswith(b"!x")
    del ports[report["gateway"]]
    for port in ports:
        answer = exchange(port, open_blocks())
        assert answer[8] == _FAILURE
        assert b"Expected SaslMessage" in answer
    assert len(lines) >= 3, "driver, JVM, daemon"
    assert len(report["secrets"]) == 2, "of py4j and of Spark"
    for secret in report["secrets"]:
        assert len(secret) >= 32
        assert not [line for line in lines if secret in line]
        assert secret not in str(report["settings"])
