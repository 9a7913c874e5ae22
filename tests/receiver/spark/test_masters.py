"""A Spark master that is not there is named at once, and one that is there is found among several."""

import socket
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError, Exit
from broker.topology import Topology
from receiver.spark.session import check_masters
from tests.conftest import Server, apply_topology
from tests.receiver.scene import Scene
from tests.support.ports import free_port
from tests.support.processes import Processes


def test_one_of_several_masters_is_enough() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as there,
        socket.create_server(("127.0.0.1", 0), backlog=0) as silent,
        socket.create_connection(silent.getsockname()),  # has the only place in its queue
    ):
        ports = (free_port(), *(one.getsockname()[1] for one in (silent, there)))
        masters = ",".join(f"127.0.0.1:{port}" for port in ports)

        check_masters(f"spark://{masters}", patience=0.5)


@pytest.mark.parametrize("address", ["nowhere", "", "h:x", "a:1,b"])
def test_what_is_no_address_of_a_master_is_said(address: str) -> None:
    with pytest.raises(ConfigurationError, match="give --master spark://host:port"):
        check_masters(f"spark://{address}")


@pytest.mark.nats
@pytest.mark.spark
def test_a_receiver_names_a_master_that_is_not_there_and_ends_with_1(
    own_server: Server, processes: Processes, tmp_path: Path
) -> None:
    apply_topology(own_server.url, Topology(partitions=2))
    master = f"spark://127.0.0.1:{free_port()}"

    receiver = Scene(own_server, processes, tmp_path).receiver("receiver", "--master", master)

    assert receiver.wait(30) == Exit.FAILED
    assert (
        receiver.said()
        .splitlines()[-1]
        .startswith(f"logreceiver: no Spark master answers at {master}: ")
    )
    assert "Traceback" not in receiver.said()
