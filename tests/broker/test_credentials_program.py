"""A running broker applies each change of credentials at once, and disconnects nobody else."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.cli import group
from nats_logship.app.exits import OperatorError
from nats_logship.client.access import Access
from nats_logship.client.client import BrokerClient
from nats_logship.client.connection import BrokerAway, Connection
from tests.broker.cluster import Cluster
from tests.broker.conftest import Broker, StartBroker, logbroker, run_broker
from tests.pages import fetch
from tests.support.processes import Processes, installed, wait_until

pytestmark = pytest.mark.nats

HTTP = ("--http", "127.0.0.1:0")


class Secured:
    """A running broker, and its credentials."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder = folder
        self.store = broker.store
        self.broker = broker

    @property
    def server(self) -> str:
        server: str = self.broker.ready()["server"]
        return server

    def call(self, command: str, *arguments: str) -> str:
        words = ["credentials", command, *arguments, "--store-dir", str(self.store)]
        result = CliRunner().invoke(group, words)
        if isinstance(result.exception, OperatorError):
            raise result.exception
        assert result.exit_code == 0, (result.output, result.exception)
        return result.output

    def add(self, kind: str, *names: str) -> list[Access]:
        """Add credentials and return the access that each gives."""
        output = self.folder / "carried"
        output.mkdir(exist_ok=True)
        said = self.call("add", kind, *names, "--output", f"{output}/", "--force", "--yes")
        assert "the broker has taken the change\n" in said
        return [self.access(output / f"{kind}-{name}.toml") for name in names]

    @staticmethod
    def access(file: Path) -> Access:
        own = {"server", "host", "partition"}
        settings = tomllib.loads(file.read_text())
        return Access(**{key: value for key, value in settings.items() if key not in own})

    def connection(self, access: Access = Access()) -> Connection:  # noqa: B008 - a frozen value
        return Connection([self.server], "test", access=access)

    async def accepts(self, access: Access = Access()) -> bool:  # noqa: B008 - a frozen value
        return await accepts(self.server, access)


async def accepts(server: str, access: Access) -> bool:
    connection = Connection([server], "test", access=access)
    try:
        await (await connection.connect()).flush()
    except BrokerAway as error:
        if "refuses" not in str(error):
            raise
        return False
    finally:
        await connection.close()
    return True


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    broker = run_broker(folder / "store", folder / "broker.log", *HTTP)
    try:
        broker.ready()
        made = Secured(folder, broker)
        made.add("admin", "first")
        yield made
    finally:
        broker.kill()


async def until_accepted(broker: Secured, file: Path) -> None:
    def is_accepted() -> bool:
        with suppress(BrokerAway):  # a server that reloads its settings closes connections
            return asyncio.run(broker.accepts(broker.access(file)))
        return False

    await asyncio.to_thread(wait_until, "the broker accepts it", is_accepted, 60)


async def until_disconnected(client: BrokerClient) -> None:
    await asyncio.to_thread(wait_until, "disconnected", lambda: not client.is_connected, 20)


async def test_the_first_credential_disconnects_others_and_keeps_the_ports(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("partitions = 3\n")
    broker = Secured(tmp_path, start_broker(*HTTP, "--config", config))
    anybody, before = broker.connection(), broker.broker.ready()
    client = await anybody.connect()

    asked = logbroker("credentials", "add", "admin", "ops", "--store-dir", broker.store)
    assert (asked.returncode, await broker.accepts()) == (2, True)
    assert "it locks out all clients without one" in asked.stderr
    (admin,) = broker.add("admin", "ops")

    await until_disconnected(client)
    await anybody.close()
    after = broker.broker.ready()
    assert (after["server"], after["pid"]) == (before["server"], before["pid"])
    assert after["nats_server_pid"] != before["nats_server_pid"]
    assert after["http"].startswith(before["http"] + "/")  # a secret path from now on
    assert not await broker.accepts()
    assert await broker.accepts(admin)

    config.write_text("partitions = \n")  # credentials are applied all the same
    broker.add("admin", "second")
    broker.call("revoke", "admin", "second")
    asked = logbroker("credentials", "revoke", "admin", "ops", "--store-dir", broker.store)
    assert (asked.returncode, await broker.accepts(admin)) == (2, True)
    assert "has no other credential than admin ops" in asked.stderr
    broker.call("revoke", "admin", "ops", "--yes")
    assert not await broker.accepts(admin)
    assert not await broker.accepts()

    staged, file = tmp_path / "staged", tmp_path / "later.toml"
    staged.mkdir()
    words = ["credentials", "add", "admin", "later", "--store-dir", str(staged)]
    assert CliRunner().invoke(group, [*words, "--output", str(file)]).exit_code == 0
    shutil.copy(staged / "credentials.json", broker.store)  # of another broker
    await until_accepted(broker, file)


async def test_a_change_disconnects_no_other_client(secured: Secured) -> None:
    stay = [secured.connection(one) for one in secured.add("host", "stay1", "stay2")]
    stay += [secured.connection(secured.add("receiver", "7")[0])]
    clients = [await connection.connect() for connection in stay]

    for number in range(8):
        secured.add("host", f"come{number}")
    secured.add("host", *(f"many{number}" for number in range(200)))
    secured.add("host", "come1")  # another one
    secured.call("revoke", "host", *(f"many{number}" for number in range(200)))

    for connection, client in zip(stay, clients, strict=True):
        assert await connection.connect() is client
        await client.flush()
        await connection.close()


async def test_a_revoked_client_is_disconnected_and_named_in_the_log(secured: Secured) -> None:
    (access,) = secured.add("host", "named")
    connection = secured.connection(access)
    client = await connection.connect()
    await connection.publish("logs.p0.other", b"x")

    def until_logged(text: str) -> None:
        wait_until(f"logged: {text}", lambda: text in secured.broker.read_log(), 30)

    refused = ' - host named - Publish Violation - Subject "logs.p0.other"'
    await asyncio.to_thread(until_logged, refused)
    await asyncio.to_thread(secured.call, "revoke", "host", "named")
    await until_disconnected(client)
    await connection.close()
    for _ in range(5):
        assert not await secured.accepts(access)
    assert not await secured.accepts(Access(user="later", password="x"))
    await asyncio.to_thread(until_logged, 'authentication error - User "later"')
    refusal = "authentication error - with the public key of host named"
    assert secured.broker.read_log().count(refusal) == 1


async def test_events_show_connections_and_refusals_with_their_credential(secured: Secured) -> None:
    (host,), stranger = secured.add("host", "seen"), Access(user="x", password="y")
    secured.add("monitor", "watching")
    monitor = secured.folder / "carried" / "monitor-watching.toml"
    program = await asyncio.create_subprocess_exec(
        *(installed("logbroker"), "events", "--config", str(monitor)),
        *("--server", secured.server, "--kind", "auth_*", "--kind", "client_*", "--count", "12"),
        stdout=asyncio.subprocess.PIPE,
    )
    shown = asyncio.ensure_future(program.communicate())
    while not shown.done():
        connection = Connection([secured.server], "host other", host)
        await connection.connect()
        await connection.close()
        assert not await secured.accepts(stranger)

    text = shown.result()[0]
    assert b" client_connect: host other host seen SHIP 127.0.0.1" in text
    assert all(kind in text for kind in (b" client_disconnect: ", b" auth_error: "))
    assert program.returncode == 0


async def test_only_an_admin_lists_and_revokes_from_another_machine(secured: Secured) -> None:
    (goes, stays, watch), (admin,) = (
        [*secured.add("host", "far1", "far2"), *secured.add("monitor", "far")],
        secured.add("admin", "far"),
    )
    connected = secured.connection(goes)
    client = await connected.connect()

    async def call(kind: str, *command: str) -> "subprocess.CompletedProcess[str]":
        config = ("--config", secured.folder / "carried" / f"{kind}-far.toml")
        known = ("--server", secured.server, *config)
        return await asyncio.to_thread(logbroker, "credentials", *command, *known)

    listed = await call("admin", "list", "--json")
    async with asyncio.timeout(12):  # refused at once, not after waiting for answers
        refused = await call("monitor", "revoke", "host", "far1")
    unknown = await call("admin", "revoke", "host", "far1", "nobody")
    assert await secured.accepts(goes)
    done = await call("admin", "revoke", "host", "far1")

    await until_disconnected(client)
    there = {(one["kind"], one["name"]): one for one in json.loads(listed.stdout)["credentials"]}
    assert ("host", "far1") in there
    assert json.loads(secured.call("list", "--json"))["secured"]
    assert (refused.returncode, unknown.returncode, done.returncode) == (1, 1, 0), done.stderr
    assert "the credential of an admin" in refused.stderr
    assert "there is no credential of host nobody" in unknown.stdout
    assert "revoked host far1" in done.stdout
    assert not await secured.accepts(goes)
    assert await secured.accepts(stays)
    assert await secured.accepts(watch)
    assert await secured.accepts(admin)
    await connected.close()


def test_the_address_of_the_monitoring_is_secret(secured: Secured) -> None:
    ready = secured.broker.ready()
    address = ready["http"].rpartition("/")[0]
    pages = (
        "connz?subs=1&auth=1",
        "subsz?subs=1",
        "accountz",
        "varz",
        "jsz",
        "stacksz",
        "debug/vars",
        "",
    )

    assert {fetch(f"{address}/{page}")[0] for page in pages} == {404}
    assert fetch(f"{ready['http']}/connz?subs=1&auth=1")[0] == 200
    assert (secured.store / "broker.json").stat().st_mode & 0o777 == 0o600


async def test_a_broken_store_changes_nothing_at_a_running_broker(secured: Secured) -> None:
    (admin,) = secured.add("admin", "keeper")
    stored = secured.store / "credentials.json"
    text, pid = stored.read_text(), json.loads((secured.store / "broker.json").read_text())["pid"]

    for broken in ('{"version": 1', text.replace('"version": 1', '"version": 9'), None):
        said = len(secured.broker.read_log())
        stored.write_text(broken) if broken is not None else stored.unlink()
        os.kill(pid, signal.SIGHUP)
        kept = "reload failed, keeping current settings"
        wait_until("it is logged", lambda: kept in secured.broker.read_log()[said:], 60)  # noqa: B023 - called at once
        assert (await secured.accepts(), await secured.accepts(admin)) == (False, True)

    stored.write_text(text)
    secured.add("host", "afterwards")


async def test_a_change_that_the_disk_refused_is_applied_later(secured: Secured) -> None:
    conf, said = secured.store / "nats-server.conf", len(secured.broker.read_log())
    conf.unlink()
    conf.mkdir()

    change = asyncio.create_task(asyncio.to_thread(secured.add, "host", "late"))
    refused = lambda: "reload failed" in secured.broker.read_log()[said:]  # noqa: E731
    await asyncio.to_thread(wait_until, "the disk refuses", refused, 60)
    conf.rmdir()
    with suppress(OperatorError):  # the change is stored
        await change

    await until_accepted(secured, secured.folder / "carried" / "host-late.toml")


@pytest.mark.timeout(300)
@pytest.mark.long
def test_an_admin_revokes_at_all_brokers_of_a_cluster_from_elsewhere(
    processes: Processes, tmp_path: Path
) -> None:
    def call(command: str, *options: str | Path) -> "subprocess.CompletedProcess[str]":
        return logbroker("credentials", command, *options)

    def accepted_at(file: Path) -> list[bool]:
        with suppress(BrokerAway):
            return [asyncio.run(accepts(url, Secured.access(file))) for url in cluster.urls]
        return []

    cluster = Cluster(tmp_path, processes)
    cluster.wait_until_ready()
    first, *others = cluster.nodes.values()
    output = tmp_path / "carried"
    output.mkdir()
    for kind, names in [("admin", ["ops"]), ("host", ["web1", "web2"])]:
        store = ("--store-dir", first.folder)
        call("add", kind, *names, *store, "--output", f"{output}/", "--yes")
    for node in others:
        shutil.copy(first.folder / "credentials.json", node.folder)
    web1, web2 = output / "host-web1.toml", output / "host-web2.toml"
    wait_until("every broker accepts them", lambda: accepted_at(web1) == [True] * 3, 30)
    admin = ("--server", ",".join(cluster.urls), "--config", output / "admin-ops.toml")
    # each logbroker connects again, with the first credential
    all_answer = lambda: "no answer" not in call("list", *admin).stderr  # noqa: E731
    wait_until("every logbroker answers", all_answer, 60)

    done = call("revoke", "host", "web1", *admin)
    left = call("list", "--json", *admin)

    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["n0", "n1", "n2"]
    wait_until("no server accepts it", lambda: accepted_at(web1) == [False] * 3, 30)
    assert accepted_at(web2) == [True] * 3
    assert {one["name"] for one in json.loads(left.stdout)["credentials"]} == {"ops", "web2"}
    assert "differ" not in left.stderr

    others[1].process.kill()
    partly = call("revoke", "host", "web2", *admin)
    left = call("list", "--json", *admin)

    assert partly.returncode == 1
    assert "n2: no answer" in partly.stdout, partly
    assert "not revoked at all servers" in partly.stderr
    assert {one["name"] for one in json.loads(left.stdout)["credentials"]} == {"ops"}
    assert "n2: no answer" in left.stderr
