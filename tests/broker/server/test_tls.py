"""Which certificates a broker uses, and that a real server takes them and lets logbroker itself in."""

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.app.address import Address
from broker.app.exits import ConfigurationError
from broker.auth.certificates import Pki, ends_of
from broker.client.access import Access
from broker.client.connection import BrokerAway, Connection
from broker.server.conf import ServerConf, render
from broker.server.tls import renew_certificates, security_of
from broker.settings import BrokerSettings
from tests.support.processes import Processes, wait_until

NOW = datetime.now(UTC)  # noqa: TID251 - what OpenSSL goes by


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    pki = Pki(folder / "tls")
    authority = pki.found("ours", NOW)
    pki.sign(authority, ["broker1.example.net"], NOW)  # not for 127.0.0.1
    client = authority.issue(["web01"], NOW)
    (folder / "web01.pem").write_bytes(client)
    return folder


def test_own_certificates_win_over_those_of_the_store(store: Path, tls: Path) -> None:
    settings = BrokerSettings(
        server_cert=tls / "server.pem",
        server_key=tls / "server.key",
        client_ca=tls / "authority.pem",
    )

    security = security_of(settings, store)

    assert security.tls is not None
    assert security.tls.authorities == str(tls / "authority.pem")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"server_cert": "gone.pem"}, "No such file"),
        ({"server_cert": "server.pem", "server_key": "client.key"}, "KEY_VALUES_MISMATCH"),
        ({"server_cert": "server.key"}, "cannot use"),
        ({"server_key": "server.key"}, "logbroker tls init"),
        ({"client_ca": "authority.pem"}, "logbroker tls init"),
        ({"require_certificates": True}, "logbroker tls init"),
        (
            {"server_cert": "server.pem", "server_key": "server.key", "require_certificates": True},
            "--client-ca",
        ),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, tls: Path, settings: dict[str, str | bool], words: str
) -> None:
    given = {k: tls / v if isinstance(v, str) else v for k, v in settings.items()}

    with pytest.raises(ConfigurationError, match=words):
        security_of(BrokerSettings(**given), tmp_path)


async def gets_in(port: int, access: Access) -> str:
    connection = Connection([f"nats://127.0.0.1:{port}"], "test", access=access)
    try:
        await connection.once()
        answer = await connection.request("$SYS.REQ.USER.INFO")
        return answer.data.decode()
    except BrokerAway as error:
        return str(error)
    finally:
        await connection.close()


@pytest.mark.nats
async def test_a_real_server_asks_for_certificates_and_lets_logbroker_in(
    store: Path, tmp_path: Path, processes: Processes, free_port: Callable[[], int]
) -> None:
    security = security_of(BrokerSettings(require_certificates=True), store)
    assert security.tls is not None
    port, path = free_port(), tmp_path / "secured.conf"
    conf = ServerConf("b", Address("127.0.0.1", port), None, str(tmp_path), 10**8, tls=security.tls)
    path.write_text(render(conf))
    binary = Path(sys.executable).with_name("nats-server")
    server = processes.start("secured", [binary, "-c", path])
    wait_until("is ready", lambda: "Server is ready" in server.said(), 60, [server])
    authority, name = store / "tls" / "authority.pem", security.own.tls_name

    known = Access(tls_ca=authority, tls_cert=store / "web01.pem", tls_name=name)
    for access in (security.own, known):
        assert '"account"' in await gets_in(port, access)
    # the verdict may go down with the line
    assert " certificate" in await gets_in(port, Access(tls_ca=authority, tls_name=name))
    assert "does not hold" in await gets_in(port, Access(tls_ca=authority, tls_cert=known.tls_cert))


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    pki = Pki(tmp_path / "tls")
    pki.sign(pki.found("ours", NOW), ["broker1.example.net"], NOW)
    return pki


def test_own_certificates_are_renewed_a_month_before_their_end_with_the_same_names(
    pki: Pki,
) -> None:
    files = [pki.broker, pki.authority]
    first = pki.broker.read_bytes()

    renew_certificates(pki.folder.parent, files, NOW + timedelta(days=334))
    assert pki.broker.read_bytes() == first

    later = NOW + timedelta(days=336)
    renew_certificates(pki.folder.parent, files, later)
    assert pki.names() == ("broker1.example.net",)
    (end,) = ends_of([pki.broker])
    assert end.not_after > later + timedelta(days=364)


@pytest.mark.parametrize("key", [None, "nonsense"])
def test_what_cannot_be_renewed_is_warned_of(
    pki: Pki, caplog: pytest.LogCaptureFixture, key: str | None
) -> None:
    pki.authority_key.unlink() if key is None else pki.authority_key.write_text(key)

    with caplog.at_level(logging.WARNING):
        for days in (363, 366):
            renew_certificates(pki.folder.parent, [pki.broker], NOW + timedelta(days=days))

    assert f"certificate {pki.broker} ends on" in caplog.text
    assert f"certificate {pki.broker} ended on" in caplog.text
    assert ("cannot renew" in caplog.text) == (key is not None)
