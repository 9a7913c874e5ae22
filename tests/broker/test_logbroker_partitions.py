"""`logbroker partitions` changes the number of partitions, also if it is interrupted."""

import json
import signal
from pathlib import Path

import pytest

from broker.inspect.streams import read_known_layout
from broker.provision.apply import apply, carry_out, read_partitions
from broker.provision.plan import plan_partitions
from broker.topology import Topology
from nats_logship.client import bucket
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import STREAM
from nats_logship.wire.subjects import Subject
from tests.broker.conftest import Call, ask, logbroker
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats

HOSTS = ("web01", "web02")


async def filled(connection: Connection, partitions: int = 2) -> None:
    """Set up a broker that holds a line of each of two hosts and an offset."""
    await apply(connection, Topology(partitions=partitions))
    for host in HOSTS:
        await connection.ask(str(Subject.for_host(host, partitions)), b"line\n")
    await bucket.write(connection, "LOGS_OFFSETS", "p0", b"{}", 0)


async def numbers(connection: Connection) -> tuple[int, int]:
    config = (await connection.api(f"STREAM.INFO.{STREAM}"))["config"]
    return (await read_known_layout(connection)).partitions, len(config["subjects"])


def test_a_broker_keeps_unused_partitions_and_refuses_another_number(start_broker: Call) -> None:
    broker = start_broker("--partitions", "5")
    url = broker.ready()["server"]
    ask(url, (str(Subject.for_host("web01", 5)), b"line\n"))

    done = logbroker("partitions", "3", "--yes", "--server", url)
    shown = logbroker("partitions", "--server", url)
    broker.stop(20)

    assert "hosts are spread over 5 partitions now" in done.stdout
    assert shown.stdout == "hosts are spread over 3 partitions now\n"
    refused = start_broker("--partitions", "5")
    assert refused.wait(60) == 78
    assert "`logbroker partitions 5`" in refused.read_log()
    for options in ((), ("--partitions", "3")):
        again = start_broker(*options)
        url = again.ready()["server"]
        assert ask(url, numbers) == (3, 5)
        again.stop(20)


def test_a_running_broker_follows_a_change_through_reloads_and_restarts_of_its_server(
    start_broker: Call, tmp_path: Path
) -> None:
    broker, admin = start_broker("--partitions", "2"), tmp_path / "admin.toml"
    state, store = broker.ready(), ("--store-dir", broker.store)
    ask(state["server"], (str(Subject.for_host("web01", 2)), b"line\n"))
    assert logbroker("partitions", "3", "--yes", "--server", state["server"]).returncode == 0

    logbroker("credentials", "add", "admin", *store, "--yes", "--output", admin)  # a reload
    logbroker("tls", "init", *store)
    broker.send(signal.SIGHUP)  # restarts nats-server

    is_restarted = lambda: broker.read_log().count(" ready: ") == 2  # noqa: E731
    wait_until("nats-server was restarted", is_restarted, 60, [broker])
    assert broker.ready()["nats_server_pid"] != state["nats_server_pid"]
    trusted = ("--config", admin, "--tls-ca", broker.store / "tls" / "authority.pem")
    found = logbroker("status", "--json", *trusted, "--server", broker.ready()["server"])
    assert json.loads(found.stdout)["current_partitions"] == 3
    assert "reload failed" not in broker.read_log()


@pytest.mark.parametrize("after", [2, 4])
def test_an_interrupted_change_is_finished_by_the_same_command(fresh_url: str, after: int) -> None:
    async def interrupt(connection: Connection) -> None:
        await filled(connection, 3)
        made = plan_partitions(after, await read_partitions(connection))
        for steps in range(len(made)):
            await carry_out(connection, made[:steps])
            assert (await read_known_layout(connection)).partitions == 3

    ask(fresh_url, interrupt)

    call = ("partitions", str(after), "--yes", "--server", fresh_url)
    first, second = logbroker(*call), logbroker(*call)

    assert (first.returncode, second.returncode) == (0, 0)
    assert second.stdout == f"hosts are spread over {after} partitions now\nnothing to do\n"
    assert ask(fresh_url, numbers) == (after, max(3, after))


async def test_of_two_changes_at_once_the_second_is_refused(fresh: Connection) -> None:
    await filled(fresh)
    one, other = [plan_partitions(n, await read_partitions(fresh)) for n in (4, 5)]

    await carry_out(fresh, one)
    with pytest.raises(Exception, match="was changed by somebody else"):
        await carry_out(fresh, other)

    assert (await read_known_layout(fresh)).partitions == 4
