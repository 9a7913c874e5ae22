"""Getting in at a real nats-server: by password, key, credentials and certificate, and what is said when it fails."""

import asyncio
import base64
import binascii
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from bench.processes import Processes, wait_until
from broker.access import Access
from broker.connection import BrokerAway, Connection
from broker.nkey import user_key

pytestmark = pytest.mark.nats

TLS = Path(__file__).parents[1] / "tls"
AUTHORITY = TLS / "authority.pem"
MINE = {"tls_cert": TLS / "client.pem", "tls_key": TLS / "client.key"}
USERS = 'authorization { users: [ { user: "web01", password: "s3cret" } ] }'
Serve = Callable[[str], str]


def tls(name: str, more: str = "") -> str:
    return f'tls {{ cert_file: "{TLS / name}.pem", key_file: "{TLS / name}.key"{more} }}\n'


@pytest.fixture
def serve(processes: Processes, tmp_path: Path, free_port: Callable[[], int]) -> Serve:
    """Return a function that starts a server with some configuration, and returns where it is: host and port."""

    def start(configuration: str) -> str:
        port, path = free_port(), tmp_path / "server.conf"
        path.write_text(f"listen: 127.0.0.1:{port}\n{configuration}")
        binary = Path(sys.executable).with_name("nats-server")
        server = processes.start("server", [binary, "-c", path])
        wait_until("is ready", lambda: "Server is ready" in server.last_words(), 20, [server])
        return f"127.0.0.1:{port}"

    return start


async def enter(url: str, access: Access = Access()) -> bool:  # noqa: B008 - a frozen value
    """Connect, and return whether the line is secured."""
    connection = Connection([url], "test", access=access)
    try:
        client = await connection.once()
        await client.flush()
        return client._is_secured()
    finally:
        await connection.close()


async def refusal(url: str, access: Access) -> str:
    with pytest.raises(BrokerAway) as raised:
        await enter(url, access)
    assert "s3cret" not in str(raised.value)
    return str(raised.value)


def encoded(kind: int, body: bytes) -> str:
    data = bytes([kind]) + body
    return (
        base64.b32encode(data + binascii.crc_hqx(data, 0).to_bytes(2, "little"))
        .decode()
        .rstrip("=")
    )


def seed_and_public(kind: int) -> tuple[str, str, SigningKey]:
    key = SigningKey(bytes([kind]) * 32)
    seed = encoded(18 << 3 | kind >> 5, bytes([(kind & 31) << 3]) + bytes(key))
    return seed, encoded(kind, bytes(key.verify_key)), key


def token(issuer: str, key: SigningKey, subject: str, claims: dict[str, object]) -> str:
    def pack(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    whole = {"jti": "x", "iat": 1, "iss": issuer, "name": "n", "sub": subject}
    parts = [{"typ": "JWT", "alg": "ed25519-nkey"}, {**whole, "nats": {**claims, "version": 2}}]
    text = ".".join(pack(json.dumps(part).encode()) for part in parts)
    return f"{text}.{pack(key.sign(text.encode()).signature)}"


async def test_a_user_gets_in_by_password(serve: Serve) -> None:
    where = serve(USERS)

    await enter(f"nats://{where}", Access(user="web01", password="s3cret"))


@pytest.mark.parametrize(
    ("url", "access", "named"),
    [
        pytest.param(
            "nats://", Access(user="web01", password="s3cret1"), "user 'web01'", id="user"
        ),
        pytest.param("nats://web02:s3cret@", Access(), "user 'web02'", id="address"),
        pytest.param("nats://s3cret@", Access(), "the token", id="token"),
        pytest.param("nats://", Access(), "a client without --creds", id="nothing"),
    ],
)
async def test_who_is_refused_is_named_without_a_secret(
    serve: Serve, url: str, access: Access, named: str
) -> None:
    where = serve(USERS)

    said = await refusal(url + where, access)

    assert f"the broker at nats://{where} refuses {named}" in said


async def test_a_key_gets_in_and_its_file_is_read_again_at_each_connect(
    serve: Serve, tmp_path: Path
) -> None:
    seed, public, _ = seed_and_public(20 << 3)
    where = serve(f"authorization {{ users: [ {{ nkey: {public} }} ] }}")
    file = tmp_path / "web01.nk"
    other = SigningKey(b"2" * 32)
    file.write_text(encoded(18 << 3 | 5, bytes([0]) + bytes(other)) + "\n")
    connection = Connection([f"nats://{where}"], "test", access=Access(nkey=file))

    with pytest.raises(BrokerAway, match=f"refuses the key of {file}"):
        await connection.once()
    file.write_text(f"# of web01\n{seed}\n")
    await connection.once()

    assert user_key(seed).public == public
    await connection.close()


async def test_a_credentials_file_gets_in_at_a_server_with_an_operator(
    serve: Serve, tmp_path: Path
) -> None:
    (_, operator, operator_key), (_, account, account_key), (seed, user, _) = (
        seed_and_public(kind << 3) for kind in (14, 0, 20)
    )
    none = {"subs": -1, "data": -1, "payload": -1}
    limits = {**none, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
    account_token = token(operator, operator_key, account, {"limits": limits, "type": "account"})
    where = serve(
        f"operator: {token(operator, operator_key, operator, {'type': 'operator'})}\n"
        f"resolver: MEMORY\nresolver_preload: {{ {account}: {account_token} }}\n"
    )
    file = tmp_path / "web01.creds"
    user_token = token(account, account_key, user, {**none, "type": "user"})
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )

    await enter(f"nats://{where}", Access(creds=file))


@pytest.mark.parametrize("first", [True, False], ids=["handshake first", "after hello"])
async def test_both_ends_show_their_certificates(serve: Serve, first: bool) -> None:
    more = f', ca_file: "{AUTHORITY}", verify: true, handshake_first: {str(first).lower()}'
    where = serve(tls("server", more))

    access = Access(tls_ca=AUTHORITY, tls_first=first, **MINE)

    assert await enter(f"nats://{where}", access)


async def test_tls_is_used_where_the_server_leaves_the_choice(serve: Serve) -> None:
    where = serve(f"allow_non_tls: true\n{tls('server')}")

    assert await enter(f"tls://{where}", Access(tls_ca=AUTHORITY))


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_no_password_goes_to_a_server_without_tls(
    scheme: str, free_port: Callable[[], int]
) -> None:
    heard, ended = bytearray(), asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b'INFO {"server_id":"x","version":"2.15.1","auth_required":true,"max_payload":1}\r\n'
        )
        heard.extend(await reader.read())
        writer.close()
        await writer.wait_closed()
        ended.set()

    port = free_port()
    async with await asyncio.start_server(listen, "127.0.0.1", port):
        access = Access(
            user="web01", password="s3cret", tls_ca=None if scheme == "tls" else AUTHORITY
        )
        said = await refusal(f"{scheme}://127.0.0.1:{port}", access)
        await ended.wait()

    assert "offers no TLS" in said
    assert heard == b""


@pytest.mark.parametrize(
    ("server", "access", "words"),
    [
        pytest.param("server", {"tls_ca": TLS / "stranger.pem"}, "issuer", id="wrong authority"),
        pytest.param("server", {}, "issuer", id="authorities of the system"),
        pytest.param("elsewhere", {"tls_ca": AUTHORITY}, "mismatch", id="name of another"),
        pytest.param("expired", {"tls_ca": AUTHORITY}, "expired", id="expired"),
    ],
)
async def test_a_certificate_that_does_not_hold_is_refused_with_the_reason(
    serve: Serve, server: str, access: dict[str, Path], words: str
) -> None:
    where = serve(tls(server))

    said = await refusal(f"tls://{where}", Access(**access))

    assert words in said
    assert "--tls-ca" in said


@pytest.mark.parametrize("mine", ["", "expired"], ids=["none", "expired"])
async def test_a_server_that_wants_another_certificate_is_said_to(serve: Serve, mine: str) -> None:
    where = serve(tls("server", f', ca_file: "{AUTHORITY}", verify: true'))
    own = {"tls_cert": TLS / f"{mine}.pem", "tls_key": TLS / f"{mine}.key"} if mine else {}

    said = await refusal(f"nats://{where}", Access(tls_ca=AUTHORITY, **own))

    assert "TLS handshake" in said


async def test_a_dead_server_of_several_costs_nothing(serve: Serve) -> None:
    where = serve("")
    for _ in range(6):  # in whatever order they are tried
        connection = Connection(["nats://127.0.0.1:1", f"nats://{where}"], "test")
        await connection.once()
        await connection.close()
