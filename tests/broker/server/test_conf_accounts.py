import subprocess
import sys
from pathlib import Path

import pytest

from broker.auth.accounts import Accounts, accounts_of
from broker.server.conf_accounts import render_accounts
from tests.broker.auth.test_store import EVERY_KIND, NOW, key

OWN = key(99)
OPEN = accounts_of((), OWN, NOW, anybody=key(98), streams=1)
CLOSED = accounts_of((), OWN, NOW, streams=1)
ALL = accounts_of(EVERY_KIND.credentials, OWN, NOW, streams=1)


@pytest.mark.nats
@pytest.mark.parametrize(
    "accounts",
    [
        pytest.param(OPEN, id="open"),
        pytest.param(CLOSED, id="closed to all"),
        pytest.param(ALL, id="all kinds"),
    ],
)
def test_nats_server_takes_it(accounts: Accounts, tmp_path: Path) -> None:
    path = tmp_path / "accounts.conf"
    path.write_text("\n".join(render_accounts(accounts)), "utf-8")

    binary = Path(sys.executable).with_name("nats-server")
    checked = subprocess.run([binary, "-t", "-c", path], capture_output=True, text=True, timeout=90)

    assert checked.returncode == 0, checked.stderr


def test_who_comes_without_a_key_is_let_in_by_an_open_broker_only() -> None:
    assert any("no_auth_user" in line for line in render_accounts(OPEN))
    assert not any("no_auth_user" in line for line in render_accounts(CLOSED))


def test_nobody_but_an_admin_or_a_site_comes_in_as_another_site() -> None:
    lines = [line.strip() for line in render_accounts(ALL) if line.strip().startswith("{ nkey")]

    free = [line for line in lines if 'allowed_connection_types: ["STANDARD"]' not in line]

    assert len(lines) == len(EVERY_KIND.credentials) + 1
    assert len(free) == 3
    assert sum('allowed_connection_types: ["LEAFNODE"]' in line for line in free) == 1
