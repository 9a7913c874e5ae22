from pathlib import Path
from typing import Any

import pytest

from broker.app.address import Address
from broker.app.configuration import load
from broker.app.exits import ConfigurationError
from broker.server.clustering import cluster_of
from broker.server.conf_cluster import ClusterConf
from broker.settings import BrokerSettings

ROUTES = ("nats-route://b1:6222", "nats-route://b2:6222")
SECRET = "0123456789abcdef"


def settings(**given: Any) -> BrokerSettings:
    return load(BrokerSettings, {"store_dir": Path("/x"), **given}, None)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.touch(0o600)
    path.write_text(f"{SECRET}\n", "utf-8")
    return path


def test_a_broker_that_nobody_made_one_of_several_is_alone() -> None:
    assert cluster_of(settings()) is None


def test_a_cluster_is_what_the_settings_say(secret: Path) -> None:
    listen = "0.0.0.0:6222"
    given = settings(
        cluster="logs", cluster_listen=listen, route=ROUTES, cluster_secret_file=secret
    )

    assert cluster_of(given) == ClusterConf(
        "logs", Address("0.0.0.0", 6222), (Address("b1", 6222), Address("b2", 6222)), SECRET
    )


def test_servers_of_one_machine_need_no_secret() -> None:
    conf = cluster_of(settings(cluster="logs", route=ROUTES))

    assert conf is not None
    assert conf.secret == ""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param({"route": ROUTES}, "--cluster", id="no-name"),
        pytest.param({"cluster": "logs"}, "--route", id="no-routes"),
        pytest.param(
            {"cluster": "logs", "route": ROUTES, "cluster_listen": "0.0.0.0:6222"},
            "--cluster-secret-file",
            id="open-to-the-network",
        ),
    ],
)
def test_half_a_cluster_is_refused_with_what_is_missing(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        cluster_of(settings(**given))


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        pytest.param(None, 0o600, "No such file", id="missing"),
        pytest.param("", 0o600, "openssl", id="empty"),
        pytest.param("short", 0o600, "openssl", id="short"),
        pytest.param("0123456789\n0123456789", 0o600, "one line", id="lines"),
        pytest.param(SECRET, 0o644, "chmod 600", id="readable-by-all"),
    ],
)
def test_a_secret_that_is_none_is_refused_and_not_shown(
    tmp_path: Path, text: str | None, mode: int, words: str
) -> None:
    path = tmp_path / "secret"
    if text is not None:
        path.write_text(text, "utf-8")
        path.chmod(mode)

    with pytest.raises(ConfigurationError, match=words) as refused:
        cluster_of(settings(cluster="logs", route=ROUTES, cluster_secret_file=path))

    assert SECRET not in str(refused.value)
