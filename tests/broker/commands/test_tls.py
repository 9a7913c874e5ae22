"""`logbroker tls` as an operator uses it, before `logbroker run` and while it runs."""

import asyncio
import json
import shutil
import signal
import socket
from pathlib import Path

import pytest

from broker.auth.certificates import parse_names
from nats_logship.client.access import Access
from nats_logship.client.answer import Rejected
from nats_logship.client.connection import BrokerAway, Connection
from nats_logship.wire.streams import STREAM
from tests.broker.conftest import Broker, StartBroker, logbroker
from tests.support.ports import free_port
from tests.support.processes import proc, wait_until


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("store")
    called = logbroker(
        "tls", "init", "--store-dir", store, "--name", "broker1.example.net", "--name", "10.0.0.7"
    )
    assert called.returncode == 0, called.stderr
    assert "the broker requires TLS from its next start or reload on" in called.stdout
    return store


def test_init_makes_a_certificate_for_the_names_and_replaces_none(made: Path) -> None:
    files = {path.name: path for path in (made / "tls").iterdir()}
    before = {name: path.read_bytes() for name, path in files.items()}
    names = parse_names(before["broker.pem"])

    again = logbroker("tls", "init", "--store-dir", made)

    assert names == ("broker1.example.net", "10.0.0.7", "localhost", "127.0.0.1", "::1")
    assert {name: path.stat().st_mode & 0o777 for name, path in files.items()} == {
        "authority.pem": 0o644,
        "authority.key": 0o600,
        "broker.pem": 0o600,
    }
    assert again.returncode == 1
    assert "logbroker tls renew" in again.stderr
    assert {name: path.read_bytes() for name, path in files.items()} == before


def test_renew_keeps_the_names_or_takes_new_ones(made: Path) -> None:
    broker = made / "tls" / "broker.pem"
    before = broker.read_bytes()

    assert logbroker("tls", "renew", "--store-dir", made).returncode == 0
    same = broker.read_bytes()
    assert same != before
    assert parse_names(same) == parse_names(before)

    assert logbroker("tls", "renew", "--store-dir", made, "--name", "other").returncode == 0
    assert parse_names(broker.read_bytes())[0] == "other"

    (store, at) = ("--store-dir", made)
    before = broker.read_bytes()
    due = logbroker("tls", "renew", store, at, "--within", "30d", "--name", "other", "--json")
    shown = json.loads(due.stdout)
    assert (shown["done"], shown["names"][0], shown["path"]) == (
        "not renewed",
        "other",
        str(broker),
    )
    assert broker.read_bytes() == before
    for reason in (("--within", "400d"), ("--within", "30d", "--name", "third")):
        assert logbroker("tls", "renew", store, at, *reason).stdout.startswith("signed again")


def test_a_second_broker_is_signed_by_the_copied_authority(made: Path, tmp_path: Path) -> None:
    second = tmp_path / "second" / "tls"
    second.mkdir(parents=True)
    for name in ("authority.pem", "authority.key"):
        shutil.copy(made / "tls" / name, second)

    called = logbroker("tls", "init", "--store-dir", second.parent)

    assert called.returncode == 0, called.stderr
    assert (second / "authority.pem").read_bytes() == (made / "tls/authority.pem").read_bytes()
    assert socket.gethostname() in parse_names((second / "broker.pem").read_bytes())
    (second / "authority.key").unlink()
    alone = logbroker("tls", "renew", "--store-dir", second.parent)
    assert alone.returncode == 78
    assert "authority.key" in alone.stderr


@pytest.mark.parametrize("name", ["", "a b", "http://x", "ümlaut"])
def test_an_invalid_name_is_refused(tmp_path: Path, name: str) -> None:
    called = logbroker("tls", "init", "--store-dir", tmp_path / "store", "--name", name)

    assert called.returncode == 2
    assert called.stderr.count("\n") == 1
    assert not (tmp_path / "store").exists()


async def certificate(url: str, access: Access) -> bytes | str | None:
    """Return the server's certificate, or why the server refuses the client.

    While nats-server reads its configuration again, nobody answers for a moment.
    """
    connection = Connection([url], "test", access=access)
    try:
        client = await connection.connect()
        await connection.api(f"STREAM.INFO.{STREAM}")
        return client.tls and client.tls.getpeercert(binary_form=True)
    except (BrokerAway, Rejected) as error:
        return str(error)
    finally:
        await connection.close()


@pytest.mark.nats
async def test_a_broker_with_a_certificate_requires_tls_and_reloads_a_new_one(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async def tls(command: str) -> None:
        done = await asyncio.to_thread(logbroker, "tls", command, "--store-dir", store)
        assert done.returncode == 0, done.stderr

    store = tmp_path / "store"
    await tls("init")
    broker = start_broker(store=store)
    url = (await asyncio.to_thread(broker.ready))["server"]
    trusting = Access(tls_ca=store / "tls" / "authority.pem")
    connection = Connection([url], "test", access=trusting)
    client = await connection.connect()
    before = await certificate(url, trusting)
    assert isinstance(before, bytes)
    assert "certificate" in str(await certificate(url, Access(tls_first=False)))

    await tls("renew")
    async with asyncio.timeout(60):
        while (shown := await certificate(url, trusting)) == before or isinstance(shown, str):  # noqa: ASYNC110 - nothing reports it
            await asyncio.sleep(0.05)

    assert client.is_connected  # nobody was sent away
    await connection.close()
    assert await asyncio.to_thread(broker.stop) == 0


@pytest.mark.nats
def test_a_certificate_may_be_renewed_while_a_broker_starts(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    store, port = tmp_path / "store", free_port()
    logbroker("tls", "init", "--store-dir", store)
    broker = start_broker("--listen", f"127.0.0.1:{port}", store=store)
    wait_until("a server starts", lambda: has_server(broker), 60, [broker], every=0.001)
    broker.send(signal.SIGSTOP)
    wait_until("the server has its certificate", lambda: listens(port), 60)

    logbroker("tls", "renew", "--store-dir", store)
    broker.send(signal.SIGCONT)

    assert broker.ready()["server"].startswith("tls://")


def has_server(broker: Broker) -> bool:
    return any("nats-server.conf" in proc(pid, "cmdline") for pid in broker.tree())


def listens(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0
