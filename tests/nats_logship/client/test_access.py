"""Authentication at a real nats-server: password, key, credentials, certificate; and its errors.

No message holds a secret.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nats_logship.app.exits import ConfigurationError
from nats_logship.client.access import Access
from nats_logship.client.connection import BrokerAway, Connection
from nats_logship.client.credentials import read_credentials
from nats_logship.client.nkey import new_seed, user_key
from tests.nats_logship.client.served import INFO, served
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.suite import start_nats_server

pytestmark = pytest.mark.nats

HERE = Path(__file__).parent
USERS = 'authorization {{ users: [ {{ user: "web01", password: "s3cret" }} ] }}'
Serve = Callable[[str], str]


def secured(name: str, more: str = "") -> str:
    """Return the configuration of a server with a certificate, `{tls}` being the folder of that."""
    return f'tls {{{{ cert_file: "{{tls}}/{name}.pem", key_file: "{{tls}}/{name}.key"{more} }}}}\n'


MUTUAL = ', ca_file: "{tls}/authority.pem", verify: true'
EXPIRED = {"tls_cert": "expired.pem", "tls_key": "expired.key"}


@pytest.fixture
def serve(processes: Processes, tmp_path: Path) -> Serve:
    """Return a function that starts a server with a configuration, and returns host and port."""

    def start(configuration: str) -> str:
        port, path = free_port(), tmp_path / "server.conf"
        path.write_text(f"listen: 127.0.0.1:{port}\n{configuration}")
        start_nats_server(processes, "server", path)
        return f"127.0.0.1:{port}"

    return start


async def enter(url: str, access: Access = Access()) -> bool:  # noqa: B008 - a frozen value
    connection = Connection([url], "test", access=access)
    try:
        client = await connection.connect()
        await client.flush()
        return client.tls is not None
    finally:
        await connection.close()


async def refusal(url: str, access: Access) -> str:
    with pytest.raises(BrokerAway) as raised:
        await enter(url, access)
    assert "s3cret" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("url", "configuration", "access", "text"),
    [
        ("nats://", USERS, {"user": "web01", "password": "s3cret1"}, " refuses user 'web01'"),
        ("nats://web02:s3cret@", USERS, {}, " refuses a client without --creds"),
        ("tls://", secured("server"), {"tls_ca": "stranger.pem"}, "issuer"),
        ("tls://", secured("server"), {}, "issuer"),
        ("tls://", secured("elsewhere"), {"tls_ca": "authority.pem"}, "mismatch"),
        ("tls://", secured("expired"), {"tls_ca": "authority.pem"}, "expired"),
        ("nats://", secured("server", MUTUAL), {"tls_ca": "authority.pem"}, "TLS handshake"),
        ("nats://", secured("server", MUTUAL), {"tls_ca": "authority.pem"} | EXPIRED, "handshake"),
    ],
)
async def test_a_refusal_names_the_reason_and_no_secret(
    url: str, configuration: str, access: dict[str, str], text: str, serve: Serve, tls: Path
) -> None:
    where = serve(configuration.format(tls=tls))
    given: dict[str, Any] = {
        one: tls / value if one.startswith("tls_") else value for one, value in access.items()
    }

    reason = await refusal(url + where, Access(**given))

    assert f"the broker at {url.partition('web02')[0]}{where} " in reason
    assert text in reason
    assert "no broker" not in reason
    assert ("--tls-ca" in reason) == ("refuses" not in text)


async def test_the_file_of_a_key_is_read_at_each_connect(
    serve: Serve, tmp_path: Path, tls: Path
) -> None:
    seed, file = new_seed(), tmp_path / "web01.nk"
    where = serve(f"authorization {{ users: [ {{ nkey: {user_key(seed).public} }} ] }}")
    file.write_text(f"{new_seed()}\n")
    connection = Connection([f"nats://{where}"], "test", access=Access(nkey=file))

    with pytest.raises(BrokerAway, match=f"refuses the key of {file}"):
        await connection.connect()
    authority = f'tls_ca_pem = """\n{(tls / "authority.pem").read_text()}"""'
    settings = f'# a credential\nhost = "Sally"\n{authority}\nnkey_seed = "{seed}"\n'
    for content in (f"# of web01\n{seed}\n", settings):
        file.write_text(content)
        await connection.connect()
        await connection.close()


async def test_a_credentials_file_is_accepted_by_a_server_with_an_operator(serve: Serve) -> None:
    """Operator, account and user are of keys made for this test, without an end."""
    where = serve(HERE.joinpath("operator.conf").read_text())

    await enter(f"nats://{where}", Access(creds=HERE / "user.creds"))


@pytest.mark.parametrize("first", [True, False], ids=["handshake first", "after hello"])
async def test_both_ends_show_their_certificates(serve: Serve, tls: Path, first: bool) -> None:
    more = f"{MUTUAL}, handshake_first: {str(first).lower()}"
    where = serve(secured("server", more).format(tls=tls))
    own = Access(tls_cert=tls / "client.pem", tls_key=tls / "client.key", tls_first=first)
    authority = tls / "authority.pem"

    assert await enter(f"nats://{where}", replace(own, tls_ca=authority))
    assert await enter(f"nats://{where}", replace(own, tls_ca_pem=authority.read_text()))


async def test_tls_is_used_if_the_server_leaves_the_choice(serve: Serve, tls: Path) -> None:
    where = serve(f"allow_non_tls: true\n{secured('server').format(tls=tls)}")

    assert await enter(f"tls://{where}", Access(tls_ca=tls / "authority.pem"))


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_no_password_goes_to_a_server_without_tls(scheme: str, tls: Path) -> None:
    received = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO.replace(b"}", b',"auth_required":true}'))
        received.extend(await reader.read())

    async with served(listen) as where:
        authority = None if scheme == "tls" else tls / "authority.pem"
        access = Access(user="web01", password="s3cret", tls_ca=authority)
        reason = await refusal(f"{scheme}://{where}", access)

    assert "offers no TLS" in reason
    assert received == b""


@pytest.mark.parametrize(
    ("greeting", "access", "text"),
    [
        (b"", {"tls_first": True}, r"answers, but does not begin with TLS \(.*out --tls-first"),
        (b"SSH-2.0-OpenSSH\r\n", {}, "answers, but not as a broker: .*check --server"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", {}, "answers, but not as a broker: .*--server"),
        pytest.param(
            *(b"", {}, "accepts the connection and sends nothing within 3 s; .* port for clients"),
            marks=pytest.mark.long,
        ),
    ],
)
async def test_an_error_says_that_a_port_belongs_to_no_broker(
    greeting: bytes, access: dict[str, bool], text: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        while await reader.read(1000):
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with served(serve) as where:
        reason = await refusal(f"nats://{where}", Access(**access))

    assert re.search(f"the server at nats://{where} {text}", reason), reason
    assert "logbroker run" not in reason


@pytest.mark.parametrize("scheme", ["nats", "tls"])
async def test_an_address_without_a_server_is_no_broker(scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:{free_port()}"

    reason = await refusal(url, Access())

    hint = "start one with `logbroker run --store-dir DIR`, or check --server"
    assert reason == f"no broker at {url}: Connection refused; {hint}"


async def test_a_broker_at_its_connection_limit_is_not_called_absent(serve: Serve) -> None:
    where = serve(
        """accounts { SHIP {
             users: [ { user: "web01", password: "s3cret" } ]
             limits { max_connections: 1 }
           } }"""
    )
    access = Access(user="web01", password="s3cret")
    first = Connection([f"nats://{where}"], "test", access=access)
    await first.connect()

    reason = await refusal(f"nats://{where}", access)

    assert "has reached its connection limit: maximum account active connections exceeded" in reason
    assert "host_connections" in reason
    await first.close()


SEED = "SUAHG43TONZXG43TONZXG43TONZXG43TONZXG43TONZXG43TONZXG4YR6A"
FILES = {"empty": "", "not-base32": "S3CRET!!", "damaged": SEED[:-4] + "AAAA"}


@pytest.mark.parametrize(
    ("access", "text"),
    [
        *(({f"{one}": "gone"}, f"No such file.*; check --{one}") for one in ("creds", "nkey")),
        *(({f"tls_{one}": "gone"}, f"No such file.*; check --tls-{one}") for one in ("ca", "cert")),
        ({"tls_cert": "client.pem", "tls_key": "gone"}, "No such file.*; check --tls-key"),
        *(({"nkey": name}, "holds no seed") for name in ("empty", "not-base32")),
        ({"nkey": "damaged"}, "damaged"),
        ({"creds": "empty", "nkey": "empty"}, "--creds and --nkey"),
        ({"nkey": "empty", "nkey_seed": "s3cret"}, "--nkey and --nkey-seed"),
        ({"password": "s3cret"}, "must be given together"),
        ({"tls_ca": "client.pem", "tls_ca_pem": "-----"}, "cannot be given together"),
        *(
            ({"tls_ca_pem": text}, "tls_ca_pem holds no readable certificate")
            for text in ("-----", "é")
        ),
        *(({"tls_ca": name}, "holds no certificate") for name in ("client.key", "empty")),
        ({"tls_key": "client.key"}, "--tls-cert"),
        ({"tls_cert": "client.pem", "tls_key": "server.key"}, "private key in .* is not that"),
    ],
)
def test_an_unusable_credential_is_refused_in_one_line_without_a_secret(
    access: dict[str, str], text: str, tls: Path, tmp_path: Path
) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    texts = {"nkey_seed", "password", "tls_ca_pem"}
    folder = {name: tls if "." in file else tmp_path for name, file in access.items()}
    given = Access(
        **{one: file if one in texts else folder[one] / file for one, file in access.items()}
    )

    with pytest.raises(ConfigurationError, match=text) as raised:
        read_credentials(given)

    shown = f"{raised.value} {given} {given!r}"
    assert "\n" not in shown
    assert not any(secret in shown for secret in ("s3cret", "S3CRET", SEED[:20]))
