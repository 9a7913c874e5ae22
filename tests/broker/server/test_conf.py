"""The configuration of nats-server: a real one takes whatever is rendered."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.app.configuration import load
from broker.auth.accounts import Section, accounts_of
from broker.server.conf import ServerConf, decided_here, quoted, render
from broker.server.process import find
from broker.settings import BrokerSettings
from tests.broker.auth.test_store import EVERY_KIND, key

ODD = (
    "\t\n\r"
    + "".join(map(chr, range(32, 256)))
    + "ü€😀 $2a$11$x \\u0041 \\x41 ${HOME} 'a' (b) #c //d"
)
CLUSTER = {
    "cluster": "logs",
    "cluster_listen": "127.0.0.1:6222",
    "route": ["nats://[fd00::2]:6222"],
}
SITES = {"site": "here", "site_listen": "127.0.0.1:7422"}
REMOTES = {"site_remote": ["nats-leaf://hub:7422", "nats-leaf://b:1"]}
FOLDER = Path("/var/lib/logs")


def conf_of(
    folder: Path = FOLDER, /, accounts: Section | None = None, **options: Any
) -> ServerConf:
    listen = {"listen": "127.0.0.1:0", "http": "[::1]:0"}
    settings = load(BrokerSettings, {**listen, "server_name": "b1", **options}, None)
    return ServerConf(settings, folder, 10**9, accounts or {})


OWN = key(99)
OPEN = accounts_of((), OWN, anybody=key(98), streams=1)
ALL = accounts_of(EVERY_KIND.credentials, OWN, streams=1)


def checked(conf: ServerConf, folder: Path) -> "subprocess.CompletedProcess[str]":
    path = folder / "nats-server.conf"
    path.write_text(render(conf), "utf-8")
    return subprocess.run([find(), "-t", "-c", path], capture_output=True, text=True)


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
    own = {**own, "websocket": {"port": 8080, "no_tls": True}}
    conf = conf_of(store, **CLUSTER, **SITES, **REMOTES, nats=own)
    conf = replace(conf, cluster_secret=odd)

    found = checked(conf, store)

    assert found.returncode == 0, found.stdout + found.stderr


def test_what_logbroker_decides_wins_over_an_operators_settings_and_these_over_defaults() -> None:
    text = render(conf_of(nats={"write_deadline": "9s", "Port": 1, "cluster": {}}))

    assert '"sync_interval": "always"' in text  # acknowledged means on disk
    assert '"write_deadline": "9s"' in text
    assert '"http":' not in render(conf_of(http=None))
    own = {"write_deadline": "9s", "Port": 1, "accounts": {}, "listen": ""}
    assert decided_here(conf_of(accounts=OPEN, nats=own)) == ["accounts", "listen", "port"]


def test_servers_show_each_other_the_secret_and_a_sites_own_subjects_cross_nowhere() -> None:
    open_conf = conf_of(**CLUSTER, **SITES, **REMOTES)
    conf = replace(open_conf, cluster_secret="s3cret", site_seed="SUSECRET")
    text = render(conf)

    assert '"nats-route://logbroker:s3cret@[fd00::2]:6222"' in text
    assert '"password": "s3cret"' in text
    assert text.count('"logs.>"') == 4
    assert render(open_conf).count("authorization") == 1  # that of other sites
    assert "leafnodes" not in render(conf_of(site="here"))
    for secret in ("s3cret", "SUSECRET"):
        assert secret not in repr(conf)


def test_nobody_but_an_admin_or_a_site_comes_in_as_another_site() -> None:
    accounts = json.loads(quoted(ALL))["accounts"].values()
    kinds = [
        user.get("allowed_connection_types") for one in accounts for user in one.get("users", [])
    ]

    assert len(kinds) == len(EVERY_KIND.credentials) + 1
    assert kinds.count(["STANDARD"]) == len(kinds) - 3
    assert kinds.count(["LEAFNODE"]) == 1
