"""A Spark master that does not answer, and a wrong setting, are reported at once."""

import logging
import re
import socket

import pytest

from nats_logship.app.exits import ConfigurationError, Exit, OperatorError
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
        pytest.param(
            "--master=spark://127.0.0.1:1",
            Exit.FAILED,
            "no Spark master answers at spark://127.0.0.1:1: ",
            id="no master",
        ),
        pytest.param(
            "--spark-conf=spark.executor.memory=abc",
            Exit.CONFIGURATION,
            "Spark does not start on local.*abc; check --spark",
            id="wrong setting",
        ),
    ],
)
def test_a_receiver_whose_spark_cannot_start_logs_why_in_one_line(
    scene: Scene, option: str, code: int, reason: str
) -> None:
    receiver = scene.receiver("receiver", option)

    assert receiver.wait(60) == code
    assert re.match(f"logreceiver: {reason}", receiver.read_log().splitlines()[-1])
    assert "Traceback" not in receiver.read_log()
