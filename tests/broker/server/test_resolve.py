"""The resolved configuration: nats-server accepts it, contradictions are refused, limits fit."""

import json
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.auth.accounts import BuiltinKeys, build_accounts
from broker.server.nats_conf import render
from broker.server.process import find_nats_server
from broker.server.resolve import ServerConf, ServerKeys, resolve
from broker.server.store import Space
from broker.settings import BrokerSettings
from nats_logship.app.configuration import load
from nats_logship.app.exits import ConfigurationError
from nats_logship.client.nkey import new_seed
from tests.broker.auth.test_credentials import EVERY_KIND, key

SPACE = Space(free=10**9, held=0, total=10**10, largest=10**10)
ROUTES = ("nats-route://b1:6222", "nats-route://b2:6222")
SECRET = "0123456789abcdef"
ANYWHERE = "0.0.0.0:4222"
sizes = st.integers(0, 10**15)
ODD = (
    "\t\n\r"
    + "".join(map(chr, range(32, 256)))
    + "ü€😀 $2a$11$x \\u0041 \\x41 ${HOME} 'a' (b) #c //d"
)
CLUSTER = {"cluster": "logs", "route": ["nats://[fd00::2]:6222"]}
SITES = {"site": "here", "site_listen": "127.0.0.1:7422"}
REMOTES = {"site_remote": ["nats-leaf://hub:7422", "nats-leaf://b:1"]}


def resolved(folder: Path, space: Space = SPACE, /, **options: Any) -> ServerConf:
    given_settings = load(BrokerSettings, {"store_dir": folder, **options}, None)
    return resolve(given_settings, folder, ServerKeys(), space)


def secret_file(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.write_text(text)
    return path


@pytest.mark.nats
@pytest.mark.parametrize("odd", ["plain", 'with "quotes", \\, @:/%40 and $HOME {x} # no', "ü"])
def test_nats_server_accepts_every_section_with_odd_characters(tmp_path: Path, odd: str) -> None:
    store = tmp_path / odd.replace("/", "-")
    store.mkdir()
    own = {"server_metadata": {"x": odd, "all": ODD}, "server_tags": ["a", odd]}
    own |= {"max_connections": 9, "websocket": {"port": 8080, "no_tls": True}}
    addresses = {"listen": "127.0.0.1:0", "http": "[::1]:0", "server_name": "b1"}
    secret = secret_file(tmp_path / "secret", odd * 16)

    conf = resolved(
        *(store,), **addresses, **CLUSTER, **SITES, **REMOTES, cluster_secret_file=secret, nats=own
    )

    path = store / "nats-server.conf"
    path.write_text(conf.text, "utf-8")
    found = subprocess.run([find_nats_server(), "-t", "-c", path], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_an_operators_settings_win_over_defaults(tmp_path: Path) -> None:
    text = resolved(tmp_path, nats={"write_deadline": "9s"}).text

    assert '"sync_interval": "always"' in text  # acknowledged means on disk
    assert '"write_deadline": "9s"' in text
    assert '"http":' not in resolved(tmp_path, http=None).text


def test_pings_of_sites_may_wait_behind_copies_on_a_slow_link(tmp_path: Path) -> None:
    text = resolved(tmp_path, **SITES).text

    assert '"ping_max": 2,' in resolved(tmp_path).text
    assert '"ping_max": 209,' in text
    assert '"compression": "off"' in text
    assert '"ping_max": 3,' in resolved(tmp_path, **SITES, nats={"ping_max": 3}).text


def test_a_cluster_has_its_secret_and_sites_deny_all_local_subjects(tmp_path: Path) -> None:
    files = {
        "cluster_secret_file": secret_file(tmp_path / "secret", SECRET),
        "site_nkey": secret_file(tmp_path / "seed", new_seed()),
    }

    conf = resolved(tmp_path, **CLUSTER, **SITES, **REMOTES, **files)
    conf_values = json.loads(conf.text.partition("\n")[2])
    unsecured = json.loads(resolved(tmp_path, **CLUSTER, **SITES).text.partition("\n")[2])

    assert conf_values["cluster"]["routes"] == [f"nats-route://logbroker:{SECRET}@[fd00::2]:6222"]
    assert conf_values["cluster"]["authorization"]["password"] == SECRET
    for remote in conf_values["leafnodes"]["remotes"]:
        assert "logs.>" in remote["deny_imports"]
        assert remote["deny_exports"] == remote["deny_imports"]
        assert remote["nkey"] == files["site_nkey"].read_text()
    assert "authorization" not in unsecured["cluster"]
    assert "leafnodes" not in resolved(tmp_path, site="here").text
    for file in files.values():
        assert file.read_text() not in repr(conf)


def test_only_a_site_or_an_admin_may_connect_as_a_leaf_node() -> None:
    section = build_accounts(EVERY_KIND.credentials, BuiltinKeys(key(99)), stream_count=1)
    accounts = json.loads(render(section))["accounts"].values()
    kinds = [
        user.get("allowed_connection_types") for one in accounts for user in one.get("users", [])
    ]

    assert len(kinds) == len(EVERY_KIND.credentials) + 1
    assert kinds.count(["STANDARD"]) == len(kinds) - 3
    assert kinds.count(["LEAFNODE"]) == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"listen": ANYWHERE}, "^--listen 0.0.0.0:4222 .*--allow-anonymous"),
        ({"http": ANYWHERE}, "^--http 0.0.0.0:4222 .*--allow-anonymous"),
        ({"route": ROUTES}, "--cluster"),
        ({"cluster": "logs"}, "--route"),
        ({"replicas": 3}, "--replicas 3 needs --cluster"),
        ({"cluster": "c", "route": ROUTES, "cluster_listen": ANYWHERE}, "--cluster-secret-file"),
        ({"site": "a", "site_listen": ANYWHERE}, "add admin NAME --store-dir /.*site NAME"),
        ({"site": "a", "mirror": "a"}, "name other sites"),
        ({"mirror": "a"}, "needs --site"),
        ({"site": "a", "site_nkey": "/gone"}, "--site-nkey /gone: No such file"),
        (
            {"server_cert": "gone.pem"},
            "cannot read .*/gone.pem: No such file.*; check --server-cert",
        ),
        ({"server_cert": __file__}, "holds no certificate.*check --server-cert"),
        ({"server_key": "key.pem"}, "logbroker tls init"),
        ({"client_ca": "ca.pem"}, "logbroker tls init"),
        (
            {"nats": {"write_deadline": "9s", "Port": 1, "accounts": {}, "listen": ""}},
            r"\[nats\] accounts, listen, port: logbroker sets this",
        ),
    ],
)
def test_contradicting_settings_are_refused(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        resolved(tmp_path, **options)


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        (b"short", 0o600, "openssl"),
        (b"0123456789\n0123456789", 0o600, "openssl"),
        (b"\xff" * 32, 0o600, "is not text"),
        (SECRET.encode(), 0o644, "chmod 600"),
    ],
)
def test_an_unfit_secret_is_refused_and_not_shown(
    tmp_path: Path, text: bytes, mode: int, reason: str
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(text)
    path.chmod(mode)

    with pytest.raises(ConfigurationError, match=reason) as refused:
        resolved(tmp_path, cluster="logs", route=ROUTES, cluster_secret_file=path)

    assert SECRET not in str(refused.value)


@settings(max_examples=40)
@given(sizes, sizes, st.none() | st.integers(1024**2, 10**16))
def test_the_stream_leaves_space_for_offsets_and_positions(
    tmp_path_factory: pytest.TempPathFactory, free: int, held: int, max_bytes: int | None
) -> None:
    space = Space(free, held, free + held, free + held)
    options = {"max_bytes": max_bytes, "reserve": 0}
    given_options = {name: value for name, value in options.items() if value is not None}
    found = resolved(tmp_path_factory.getbasetemp(), space, **given_options)

    bound = found.topology.max_bytes
    store = max(free + held, 1)
    assert bound is not None
    assert 0 < bound <= max(store - min(1024**3, store // 8), 1)
    assert max_bytes is None or bound <= max_bytes


def test_a_restart_on_a_disk_that_others_use_keeps_the_limit_of_the_streams(tmp_path: Path) -> None:
    limits = {
        resolved(tmp_path, Space(free, 0, 10**11, 10**11), reserve=0).topology.max_bytes
        for free in (60_000_000_000, 60_000_600_000, 60_100_000_000)
    }

    assert len(limits) == 1
    assert 57_000_000_000 < (limits.pop() or 0) < 60_000_000_000


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"partitions": "0"}, "--partitions"),
        ({"max_age": "0s"}, "--max-age"),
        ({"max_age": "300000d"}, "--max-age: .*100000d"),
        ({"max_bytes": "5Q"}, "--max-bytes"),
        ({"max_bytes": "0"}, "--max-bytes"),
        ({"max_bytes": "999kB"}, "--max-bytes: .*must be at least 1.0 MiB"),
        ({"max_bytes": "99999PB"}, "--max-bytes: .*must be at most"),
        ({"listen": "here"}, "--listen"),
        ({"memory": "-1"}, "--memory"),
        ({"server_name": "a b"}, "--server-name"),
        ({"route": ("http://b2:1",)}, "--route"),
        ({"route": ("nats-route://b2:0",)}, "--route"),
        ({"route": ("nats-route://u:s3cret@b2:6222",)}, "--cluster-secret-file"),
        ({"site_remote": ("nats-leaf://hub",)}, "--site-remote"),
        ({"source": ("a b",)}, "--source"),
        *(
            (
                {"server": ("nats://127.0.0.1:4222", one)},
                "--server: .* is not the address of a NATS",
            )
            for one in ("http://b1", "nats://me:s3cret@b1:port", "nats://[::1", "nats://", "")
        ),
    ],
)
def test_an_invalid_setting_is_refused_by_name_without_its_secret(
    options: dict[str, object], reason: str
) -> None:
    with pytest.raises(click.UsageError, match=reason) as refused:
        load(BrokerSettings, options, None)

    assert "s3cret" not in str(refused.value)


def test_one_text_may_hold_several_servers() -> None:
    some = ("nats://127.0.0.1:4222", "tls://broker1:4222", "nats://[::1]:4222", "b1:4222", "b1")

    assert load(BrokerSettings, {"server": (", ".join(some),)}, None).server == some
