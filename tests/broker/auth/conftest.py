"""The server that tests of rights share, and a client that may do everything there."""

from collections.abc import Iterator

import pytest

from nats_logship.wire.streams import positions_key
from tests import secured
from tests.broker.auth.forbidden import HOSTS, IDENTITIES
from tests.raw import Raw
from tests.secured import OWN, Secured
from tests.support.processes import Processes


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Start a server with lines, positions, offsets and a consumer of each kind."""
    folder = tmp_path_factory.mktemp("forbidden")
    with Processes(folder) as processes:
        started = secured.start_secured(processes, folder, *IDENTITIES)
        with Raw(started.port, OWN) as own:
            for subject in ("logs.p0.web01", "logs.p0.web02", "logs.p1.web01.example.net"):
                own.ask(subject, f"a line of {subject}")
            for host in HOSTS:
                own.ask(f"$KV.LOGS_POSITIONS.{positions_key(host)}", f"positions of {host}")
            for partition in (0, 1):
                own.ask(f"$KV.LOGS_OFFSETS.p{partition}", {"partition": partition})
                for name in (f"receiver-p{partition}", f"wake-p{partition}-0"):
                    _make_consumer(own, name, f"logs.p{partition}.>")
            _make_consumer(own, "shipper-web02", "logs.*.web02")
        yield started


def _make_consumer(own: Raw, name: str, subject: str) -> None:
    config = {"durable_name": name, "ack_policy": "all", "filter_subject": subject}
    body = {"stream_name": "LOGS", "config": config}
    assert "error" not in own.ask(f"$JS.API.CONSUMER.CREATE.LOGS.{name}.{subject}", body)


@pytest.fixture(scope="session")
def own(server: Secured) -> Iterator[Raw]:
    with Raw(server.port, OWN) as client:
        yield client
