"""What all rings share.

One real nats-server, addresses in it that nobody else uses, and real programs.

| fixture | scope | what a test gets |
|---|---|---|
| `fresh_url` | test | a shared server, an account of the test's own: empty JetStream, no streams |
| `second_url` | test | as `fresh_url`, another account: a second broker |
| `logs_url` | test | as `fresh_url`, with stream and buckets of `Topology(partitions=2)` |
| `connection` | test | a connection to the server of `logs_url` |
| `own_server` | test | a plain nats-server of the test's own, which it may kill and restart |
| `own_broker` | test | as `own_server`, with the stream and buckets of `logs_url` |
| `processes` | test | starts programs, ours as forks (tests/support/forks.py), and ends them |
| `manager` | test | a service manager that receives notifications of programs |
| `suite` | test | starts the three programs, for two partitions, and asks the broker |
| `spark` | session | one Spark: it takes seconds to start, and a process holds one at a time |
| `tls` | session | a folder of certificates and keys, as `make_certificates` describes it |
"""

import itertools
import logging
import os
import signal
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from broker.topology import Topology
from nats_logship.client.bucket import write
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY, STREAMS_KEY
from tests.manager import Manager
from tests.support import forks
from tests.support.ports import free_port
from tests.support.processes import Process, Processes
from tests.support.suite import Suite, ask, start_nats_server, wait_until_ready

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# how long a case takes, and how long it takes to draw one, is the machine's affair
settings.register_profile(
    "shared",
    deadline=None,
    derandomize=True,  # a run that fails by chance says nothing about a change
    database=None,  # the checkout may be one that cannot be written to
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shared")

# a shell's background job ignores them, and nohup's another one: programs that a test starts would
# inherit that
for number, usual in {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}.items():
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

_LOGS = Topology(partitions=2)
_SLOW = ("booted", "journey", "spark")  # marks of tests that take long, nearly all of them
_OWN_ACCOUNT = ("fresh_url", "second_url")

_CONFIGURATION = """
listen: "127.0.0.1:{port}"
max_payload: 8MB
jetstream {{
  store_dir: "{store}"
  max_file_store: 8GB
}}
feature_flags {{ js_ack_fc_v2: false }}
no_auth_user: "shared"
accounts {{
  SHARED {{ jetstream: enabled, users: [ {{ user: "shared", password: "shared" }} ] }}
{accounts}
}}
"""


class Server(NamedTuple):
    url: str
    process: Process

    def kill_and_restart(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        """End it and leave its port closed."""
        self.process.kill()

    def start(self) -> None:
        self.process.start()
        wait_until_ready(self.process)


def start_server(processes: Processes, folder: Path, accounts: int = 0) -> Server:
    port = free_port()
    names = "\n".join(
        f'  T{n} {{ jetstream: enabled, users: [ {{ user: "t{n}", password: "t{n}" }} ] }}'
        for n in range(accounts)
    )
    path = folder / "nats-server.conf"
    path.write_text(
        _CONFIGURATION.format(port=port, store=folder / "store", accounts=names), "utf-8"
    )
    process = start_nats_server(processes, f"nats-server-{port}", path)
    return Server(f"nats://127.0.0.1:{port}", process)


def apply_topology(url: str, topology: Topology = _LOGS) -> None:
    async def apply(connection: Connection) -> None:
        for configuration in topology.streams():
            await connection.api(f"STREAM.CREATE.{configuration['name']}", configuration)
        if topology.stream_count > 1:
            count = str(topology.stream_count).encode()
            await write(connection, CONFIG_BUCKET, STREAMS_KEY, count, 0)
        count = str(topology.partitions).encode()
        await write(connection, CONFIG_BUCKET, PARTITIONS_KEY, count, 0)

    ask(url, apply)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Leave tests of the harness itself to `make test-long`; begin with slow tests."""
    harness = [Path(__file__).with_name(folder) for folder in ("bench", "chaos")]
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in harness):
            item.add_marker(pytest.mark.long)
    yield
    _begin_with_slow(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def _begin_with_slow(items: list[pytest.Item], workers: int) -> None:
    """Have each worker begin with its share of the slow tests, so that none is begun last.

    pytest-xdist gives each an equal run of the list, the first the smallest, and moves the ends.
    """
    slow = [item for item in items if any(map(item.get_closest_marker, _SLOW))]
    rest = [item for item in items if not any(map(item.get_closest_marker, _SLOW))]
    items.clear()
    for left in range(workers, 0, -1):
        count = (len(slow) + len(rest)) // left
        begin, slow = slow[::left], [item for n, item in enumerate(slow) if n % left]
        more = max(0, count - len(begin))
        items += [*begin, *rest[:more]]
        rest = rest[more:]


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    """Restore what a command inside a test sets: log level, umask, held signals."""
    level, _ = logging.root.level, os.umask(0o022)
    held = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    logging.root.setLevel(level)
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, held)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    from receiver.spark.jvm import run_jvm
    from receiver.spark.session import spark_context

    # a JVM for a cluster has all of Spark's archives, those of SQL too
    with run_jvm("spark://") as jvm, spark_context("local[2]", jvm=jvm) as context:
        session = SparkSession(context)
        try:
            yield session
        finally:
            with suppress(OSError, Py4JError):  # a JVM that has died has nothing to stop
                session.stop()


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.certificates import make_certificates  # few tests need it, and it takes a while

    folder = tmp_path_factory.mktemp("tls")
    make_certificates(folder)
    return folder


@pytest.fixture(scope="session")
def _server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("nats-server")
    # enough for all of them: how many of the tests come to which worker is decided while they run
    accounts = sum(
        name in _OWN_ACCOUNT for item in request.session.items for name in item.fixturenames
    )
    with Processes(folder) as processes:
        yield start_server(processes, folder, accounts)


_numbers = itertools.count()


def _fresh(server: Server) -> str:
    number = next(_numbers)
    return server.url.replace("nats://", f"nats://t{number}:t{number}@")


@pytest.fixture
def fresh_url(_server: Server) -> str:
    return _fresh(_server)


@pytest.fixture
def second_url(_server: Server) -> str:
    return _fresh(_server)


@pytest.fixture
def logs_url(fresh_url: str) -> str:
    apply_topology(fresh_url)
    return fresh_url


@pytest.fixture
async def connection(logs_url: str) -> AsyncIterator[Connection]:
    connection = Connection([logs_url], "tests")
    await connection.connect()
    yield connection
    await connection.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "own-server"
    folder.mkdir()
    with Processes(folder) as processes:
        yield start_server(processes, folder)


@pytest.fixture
def own_broker(own_server: Server) -> Server:
    apply_topology(own_server.url)
    return own_server


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    folder = tmp_path / "programs"
    folder.mkdir(exist_ok=True)
    with Processes(folder, forks.start) as started:
        yield started


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with closing(Manager(tmp_path)) as manager:
        yield manager


@pytest.fixture
def suite(tmp_path: Path, processes: Processes) -> Suite:
    return Suite(tmp_path, processes)
