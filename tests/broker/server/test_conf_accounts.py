import subprocess
import sys
from pathlib import Path

import pytest

from broker.client.nkey import new_seed, user_key
from broker.granting.accounts import Accounts, accounts_of, open_accounts
from broker.granting.identity import Certificate, Identity, Kind, Nkey, Password
from broker.server.conf_accounts import render_accounts

OWN = Password("logbroker", "$2b$04$h040HyhCwfEfjdGfkEqlRO6tWn6s3m6GYx9BStL7YKGBFPbLn3y7.")
NKEY = Nkey(user_key(new_seed(bytes(32))).public)
IDENTITIES = (
    Identity(Kind.HOST, "web01", Password("web01", OWN.hashed)),
    Identity(Kind.HOST, 'w"eb\\02.é', Certificate('CN=w"eb\\02,O=é')),
    Identity(Kind.RECEIVER, "r3", Certificate("r3.example.net"), (3, 4)),
    Identity(Kind.RECEIVER, "all", Password("all", OWN.hashed)),
    Identity(Kind.ADMIN, "ops", Password("ops", OWN.hashed)),
)


@pytest.mark.nats
@pytest.mark.parametrize(
    "accounts",
    [
        pytest.param(open_accounts(OWN, NKEY), id="open"),
        pytest.param(accounts_of((), OWN), id="closed to all"),
        pytest.param(accounts_of(IDENTITIES, OWN), id="all kinds"),
    ],
)
def test_nats_server_takes_it(accounts: Accounts, tmp_path: Path) -> None:
    path = tmp_path / "accounts.conf"
    path.write_text("\n".join(render_accounts(accounts)), "utf-8")

    binary = Path(sys.executable).with_name("nats-server")
    checked = subprocess.run([binary, "-t", "-c", path], capture_output=True, text=True, timeout=90)

    assert checked.returncode == 0, checked.stderr


def test_who_comes_without_a_proof_is_let_in_by_an_open_broker_only() -> None:
    assert any("no_auth_user" in line for line in render_accounts(open_accounts(OWN, NKEY)))
    assert not any("no_auth_user" in line for line in render_accounts(accounts_of((), OWN)))


def test_a_key_is_a_user_of_its_own() -> None:
    text = "\n".join(render_accounts(accounts_of((Identity(Kind.ADMIN, "ops", NKEY),), OWN)))

    assert f'{{ nkey: "{NKEY.public}" }}' in text


def test_nobody_but_an_admin_with_a_secret_comes_in_as_another_site() -> None:
    ops, named = Identity(Kind.ADMIN, "ops", NKEY), Identity(Kind.ADMIN, "n", Certificate("n"))
    lines = render_accounts(accounts_of((*IDENTITIES, ops, named), OWN))

    users = [line.strip() for line in lines if line.strip().startswith(("{ nkey", "{ user"))]
    free = [line for line in users if 'allowed_connection_types: ["STANDARD"]' not in line]

    assert len(users) == 8
    assert [line.split(",")[0].strip("{} ") for line in free] == [
        'user: "logbroker"',
        'user: "ops"',
        f'nkey: "{NKEY.public}"',
    ]
