"""A Spark master that is not there is named at once, and one that is there is found among several."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError, Exit, OperatorError
from broker.topology import Topology
from receiver.spark.session import check_masters
from tests.conftest import Server, apply_topology
from tests.receiver.scene import Scene
from tests.support.ports import free_port
from tests.support.processes import Processes


@pytest.fixture
def there() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """Yield the address of one that takes no connection and refuses none, as a machine that is switched off."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        with socket.create_connection(address):  # has the only place in its queue
            yield f"127.0.0.1:{address[1]}"


def test_one_of_several_masters_is_enough(there: str, silent: str) -> None:
    check_masters(f"spark://127.0.0.1:{free_port()},{silent},{there}", patience=0.5)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("nowhere.invalid", r"nowhere\.invalid:\d+: \S+"),
        ("a..b", r"a\.\.b:\d+: \S+"),
    ],
)
def test_masters_that_are_not_there_are_named_with_why(host: str, why: str) -> None:
    master = f"spark://{host}:{free_port()}"

    with pytest.raises(OperatorError, match=why) as told:
        check_masters(master)

    assert str(told.value).startswith(f"no Spark master answers at {master}: ")
    assert str(told.value).endswith("; start it, or give another --master")
    assert told.value.code == Exit.FAILED


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
