"""Credentials given and taken while a broker runs: it takes each change at once, and lets go nobody but whom it concerns."""

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
        """Add credentials and return how their bearers get in."""
        output = self.folder / "carried"
        output.mkdir(exist_ok=True)
        said = self.call("add", kind, *names, "--output", f"{output}/", "--force")
        assert "the broker has taken the change\n" in said
        return [self.access(output / f"{kind}-{name}.toml") for name in names]

    @staticmethod
    def access(file: Path) -> Access:
        own = {"server", "host", "partition"}
        settings = tomllib.loads(file.read_text())
        return Access(**{key: value for key, value in settings.items() if key not in own})

    def connection(self, access: Access = Access()) -> Connection:  # noqa: B008 - a frozen value
        return Connection([self.server], "test", access=access)

    async def gets_in(self, access: Access = Access()) -> bool:  # noqa: B008 - a frozen value
        return await gets_in(self.server, access)


async def gets_in(server: str, access: Access) -> bool:
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


async def until_in(broker: Secured, file: Path) -> None:
    def is_in() -> bool:
        with suppress(BrokerAway):  # a server that reads its settings just then hangs up
            return asyncio.run(broker.gets_in(broker.access(file)))
        return False

    await asyncio.to_thread(wait_until, "the broker has taken the change", is_in, 60)


async def until_gone(client: BrokerClient) -> None:
    await asyncio.to_thread(wait_until, "it is let go", lambda: not client.is_connected, 20)


async def test_the_first_credential_lets_go_who_came_without_one_and_keeps_the_ports(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("partitions = 3\n")
    broker = Secured(tmp_path, start_broker(*HTTP, "--config", config))
    anybody, before = broker.connection(), broker.broker.ready()
    client = await anybody.connect()

    (admin,) = broker.add("admin", "ops")

    await until_gone(client)
    await anybody.close()
    after = broker.broker.ready()
    assert (after["server"], after["pid"]) == (before["server"], before["pid"])
    assert after["nats_server_pid"] != before["nats_server_pid"]
    assert after["http"].startswith(before["http"] + "/")  # a secret path from now on
    assert not await broker.gets_in()
    assert await broker.gets_in(admin)

    config.write_text("partitions = \n")  # credentials are taken over all the same
    broker.add("admin", "second")
    broker.call("revoke", "admin", "second")
    broker.call("revoke", "admin", "ops")
    assert not await broker.gets_in(admin)
    assert not await broker.gets_in()

    staged, file = tmp_path / "staged", tmp_path / "later.toml"
    staged.mkdir()
    words = ["credentials", "add", "admin", "later", "--store-dir", str(staged)]
    assert CliRunner().invoke(group, [*words, "--output", str(file)]).exit_code == 0
    shutil.copy(staged / "credentials.json", broker.store)  # of another broker
    await until_in(broker, file)


async def test_who_is_connected_stays_so_while_others_come_and_go(secured: Secured) -> None:
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


async def test_the_log_names_who_tried_what_and_who_was_let_in_no_more(secured: Secured) -> None:
    (access,) = secured.add("host", "named")
    connection = secured.connection(access)
    await connection.connect()
    await connection.publish("logs.p0.other", b"x")

    def says(words: str) -> None:
        wait_until(f"says {words}", lambda: words in secured.broker.said(), 30)

    tried = ' - host named - Publish Violation - Subject "logs.p0.other"'
    await asyncio.to_thread(says, tried)
    await asyncio.to_thread(secured.call, "revoke", "host", "named")
    await connection.close()
    assert not await secured.gets_in(access)
    await asyncio.to_thread(says, "authentication error - by its key it is host named")


async def test_events_name_the_credential_of_a_client_whatever_the_client_says(
    secured: Secured,
) -> None:
    (host,) = secured.add("host", "seen")
    secured.add("monitor", "watching")
    monitor = secured.folder / "carried" / "monitor-watching.toml"
    program = await asyncio.create_subprocess_exec(
        *(installed("logbroker"), "events", "--config", str(monitor)),
        *("--server", secured.server, "--kind", "client_connect", "--count", "1"),
        stdout=asyncio.subprocess.PIPE,
    )
    shown = asyncio.ensure_future(program.communicate())
    while not shown.done():
        connection = Connection([secured.server], "host other", host)
        await connection.connect()
        await connection.close()
        await asyncio.sleep(0.1)

    assert b" client_connect: host other host seen SHIP 127.0.0.1" in shown.result()[0]


async def test_an_admin_elsewhere_lists_and_revokes_and_nobody_else_does(secured: Secured) -> None:
    (goes, stays, watch), (admin,) = (
        [*secured.add("host", "far1", "far2"), *secured.add("monitor", "far")],
        secured.add("admin", "far"),
    )
    connected = secured.connection(goes)
    client = await connected.connect()

    async def call(kind: str, *words: str) -> "subprocess.CompletedProcess[str]":
        config = ("--config", secured.folder / "carried" / f"{kind}-far.toml")
        known = ("--server", secured.server, *config)
        return await asyncio.to_thread(logbroker, "credentials", *words, *known)

    listed = await call("admin", "list", "--json")
    async with asyncio.timeout(12):  # told at once, not when no more answers can come
        refused = await call("monitor", "revoke", "host", "far1")
    unknown = await call("admin", "revoke", "host", "far1", "nobody")
    assert await secured.gets_in(goes)
    done = await call("admin", "revoke", "host", "far1")

    await until_gone(client)
    there = {(one["kind"], one["name"]): one for one in json.loads(listed.stdout)["credentials"]}
    assert ("host", "far1") in there
    assert json.loads(secured.call("list", "--json"))["secured"]
    assert (refused.returncode, unknown.returncode, done.returncode) == (1, 1, 0), done.stderr
    assert "the credential of an admin" in refused.stderr
    assert "there is no credential of host nobody" in unknown.stdout
    assert "host far1 revoked" in done.stdout
    assert not await secured.gets_in(goes)
    assert await secured.gets_in(stays)
    assert await secured.gets_in(watch)
    assert await secured.gets_in(admin)
    await connected.close()


def test_monitoring_tells_nobody_of_others_who_may_not_read_the_broker_s_file(
    secured: Secured,
) -> None:
    ready = secured.broker.ready()
    address = ready["http"].rpartition("/")[0]
    pages = (
        *("connz?subs=1&auth=1", "subsz?subs=1", "accountz", "varz"),
        *("jsz", "stacksz", "debug/vars", ""),
    )

    assert {fetch(f"{address}/{page}")[0] for page in pages} == {404}
    assert fetch(f"{ready['http']}/connz?subs=1&auth=1")[0] == 200
    assert (secured.store / "broker.json").stat().st_mode & 0o777 == 0o600


async def test_a_broken_store_neither_opens_nor_closes_a_running_broker(secured: Secured) -> None:
    (admin,) = secured.add("admin", "keeper")
    stored = secured.store / "credentials.json"
    text, pid = stored.read_text(), json.loads((secured.store / "broker.json").read_text())["pid"]

    for broken in ('{"version": 1', text.replace('"version": 1', '"version": 9'), None):
        said = len(secured.broker.said())
        stored.write_text(broken) if broken is not None else stored.unlink()
        os.kill(pid, signal.SIGHUP)
        kept = "reload failed, keeping current settings"
        wait_until("it is said", lambda: kept in secured.broker.said()[said:], 60)  # noqa: B023 - called at once
        assert (await secured.gets_in(), await secured.gets_in(admin)) == (False, True)

    stored.write_text(text)
    secured.add("host", "afterwards")


async def test_a_change_that_the_disk_refused_is_taken_later(secured: Secured) -> None:
    conf, said = secured.store / "nats-server.conf", len(secured.broker.said())
    conf.unlink()
    conf.mkdir()

    change = asyncio.create_task(asyncio.to_thread(secured.add, "host", "late"))
    refused = lambda: "reload failed" in secured.broker.said()[said:]  # noqa: E731
    await asyncio.to_thread(wait_until, "the disk refuses", refused, 60)
    conf.rmdir()
    with suppress(OperatorError):  # the change is stored
        await change

    await until_in(secured, secured.folder / "carried" / "host-late.toml")


@pytest.mark.timeout(300)
@pytest.mark.long
def test_an_admin_elsewhere_revokes_at_every_broker_of_a_cluster(
    processes: Processes, tmp_path: Path
) -> None:
    def call(command: str, *words: str | Path) -> "subprocess.CompletedProcess[str]":
        return logbroker("credentials", command, *words)

    def gets_in_at(file: Path) -> list[bool]:
        with suppress(BrokerAway):
            return [asyncio.run(gets_in(url, Secured.access(file))) for url in cluster.urls]
        return []

    cluster = Cluster(tmp_path, processes)
    cluster.wait_until_ready()
    first, *others = cluster.nodes.values()
    output = tmp_path / "carried"
    output.mkdir()
    for kind, names in [("admin", ["ops"]), ("host", ["web1", "web2"])]:
        call("add", kind, *names, "--store-dir", first.folder, "--output", f"{output}/")
    for node in others:
        shutil.copy(first.folder / "credentials.json", node.folder)
    web1, web2 = output / "host-web1.toml", output / "host-web2.toml"
    wait_until("every broker has taken them", lambda: gets_in_at(web1) == [True] * 3, 30)
    admin = ("--server", ",".join(cluster.urls), "--config", output / "admin-ops.toml")
    # each logbroker comes again, with the first credential, to the server that lets web1 in already
    all_tell = lambda: "no answer" not in call("list", *admin).stderr  # noqa: E731
    wait_until("every logbroker tells of its credentials", all_tell, 60)

    done = call("revoke", "host", "web1", *admin)
    left = call("list", "--json", *admin)

    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["n0", "n1", "n2"]
    wait_until("it gets in nowhere", lambda: gets_in_at(web1) == [False] * 3, 30)
    assert gets_in_at(web2) == [True] * 3
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
