"""The configuration of nats-server: a real one takes whatever is rendered."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from broker.app.address import Address
from broker.auth.accounts import Accounts, accounts_of
from broker.server.conf import (
    ClusterConf,
    ServerConf,
    SitesConf,
    decided_here,
    render,
    render_accounts,
)
from broker.server.process import find
from tests.broker.auth.test_store import EVERY_KIND, NOW, key

ODD = "".join(map(chr, range(1, 256))) + "ü€😀 $2a$11$x \\u0041 \\x41 ${HOME} 'a' (b) #c //d"
HERE = Address("127.0.0.1", 0)
CLUSTER = ClusterConf("logs", Address("127.0.0.1", 6222), (Address("fd00::2", 6222),), "s3cret")
SITES = SitesConf("here", Address("127.0.0.1", 7422), (Address("hub", 7422), Address("b", 1)))
CONF = ServerConf("b1", HERE, Address("::1", 0), "/var/lib/logs", 10**9)

OWN = key(99)
OPEN = accounts_of((), OWN, NOW, anybody=key(98), streams=1)
CLOSED = accounts_of((), OWN, NOW, streams=1)
ALL = accounts_of(EVERY_KIND.credentials, OWN, NOW, streams=1)


def checked(conf: ServerConf, folder: Path) -> "subprocess.CompletedProcess[str]":
    path = folder / "nats-server.conf"
    path.write_text(render(conf), "utf-8")
    return subprocess.run([find(None), "-t", "-c", path], capture_output=True, text=True)


@pytest.mark.nats
@pytest.mark.parametrize("odd", ["plain", 'with "quotes", \\, @:/%40 and $HOME {x} # no', "ü"])
def test_nats_server_takes_every_section_whatever_the_texts_are(tmp_path: Path, odd: str) -> None:
    store = tmp_path / odd.replace("/", "-")
    store.mkdir()
    own = {
        "server_metadata": {"x": odd, "all": ODD},
        "server_tags": ["a", odd],
        "max_connections": 9,
    }
    conf = replace(
        CONF,
        folder=str(store),
        cluster=replace(CLUSTER, secret=odd),
        sites=replace(SITES, is_open=True),
        own={**own, "websocket": {"port": 8080, "no_tls": True}},
    )

    found = checked(conf, store)

    assert found.returncode == 0, found.stdout + found.stderr


def test_acknowledged_means_on_disk_and_without_an_address_there_is_no_monitoring() -> None:
    assert '"sync_interval": "always"' in render(CONF)
    assert '"http":' in render(CONF)
    assert '"http":' not in render(replace(CONF, http=None))


def test_an_operators_settings_win_over_defaults_and_not_over_what_logbroker_decides() -> None:
    conf = replace(CONF, own={"write_deadline": "9s", "Port": 1, "accounts": {}, "listen": ""})

    assert '"write_deadline": "9s"' in render(conf)
    assert decided_here(conf) == ["Port", "accounts", "listen"]


def test_servers_of_a_cluster_show_each_other_the_secret_where_there_is_one() -> None:
    text, open_text = (
        render(replace(CONF, cluster=replace(CLUSTER, secret=s))) for s in ("s3cret", "")
    )

    assert '"nats-route://logbroker:s3cret@[fd00::2]:6222"' in text
    assert '"password": "s3cret"' in text
    assert "authorization" not in open_text


def test_a_sites_own_subjects_cross_to_no_other_site() -> None:
    text = render(replace(CONF, sites=SITES))

    assert text.count('"logs.>"') == 4
    assert "authorization" not in text
    assert "leafnodes" not in render(replace(CONF, sites=SitesConf("here")))


def test_secrets_do_not_show_where_a_value_is_shown() -> None:
    shown = repr(replace(CONF, cluster=CLUSTER, sites=replace(SITES, seed="SUSECRET")))

    assert "s3cret" not in shown
    assert "SUSECRET" not in shown


@pytest.mark.nats
@pytest.mark.parametrize(
    "accounts",
    [
        pytest.param(OPEN, id="open"),
        pytest.param(CLOSED, id="closed to all"),
        pytest.param(ALL, id="all kinds"),
    ],
)
def test_nats_server_takes_all_accounts(accounts: Accounts, tmp_path: Path) -> None:
    found = checked(replace(CONF, accounts=accounts, folder=str(tmp_path)), tmp_path)

    assert found.returncode == 0, found.stderr


def test_nobody_but_an_admin_or_a_site_comes_in_as_another_site() -> None:
    accounts = json.loads("{" + render_accounts(ALL) + "}")["accounts"].values()
    kinds = [
        user.get("allowed_connection_types") for one in accounts for user in one.get("users", [])
    ]

    assert len(kinds) == len(EVERY_KIND.credentials) + 1
    assert kinds.count(["STANDARD"]) == len(kinds) - 3
    assert kinds.count(["LEAFNODE"]) == 1
