import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from broker.app.address import Address
from broker.server.binary import find
from broker.server.conf import ServerConf, render
from broker.server.conf_cluster import ClusterConf, render_cluster

CLUSTER = ClusterConf(
    "logs",
    Address("127.0.0.1", 6222),
    (Address("b1.example.net", 6222), Address("fd00::2", 6222)),
    "s3cret",
)


@pytest.mark.parametrize(
    "secret", ["", "plain", 'with "quotes", \\, @:/%40 and $HOME', "mit Umläuten ü"]
)
def test_nats_server_accepts_a_cluster_whatever_its_secret_is(tmp_path: Path, secret: str) -> None:
    conf = tmp_path / "nats-server.conf"
    server = ServerConf("b1", Address("127.0.0.1", 0), None, str(tmp_path), 10**9)
    conf.write_text(render(replace(server, cluster=replace(CLUSTER, secret=secret))), "utf-8")

    checked = subprocess.run([find(None), "-t", "-c", conf], capture_output=True, text=True)

    assert checked.returncode == 0, checked.stderr


def test_servers_tell_each_other_the_secret() -> None:
    text = "\n".join(render_cluster(CLUSTER))

    assert '"nats-route://logbroker:s3cret@b1.example.net:6222"' in text
    assert '"nats-route://logbroker:s3cret@[fd00::2]:6222"' in text
    assert 'password: "s3cret"' in text


def test_a_secret_does_not_show_where_the_value_is_shown() -> None:
    assert "s3cret" not in repr(CLUSTER)


def test_without_a_secret_nobody_is_asked_for_one() -> None:
    text = "\n".join(render_cluster(replace(CLUSTER, secret="")))

    assert "authorization" not in text
    assert '"nats-route://b1.example.net:6222"' in text


def test_lines_of_tls_stand_within_the_section() -> None:
    lines = render_cluster(replace(CLUSTER, tls=("tls {", "  timeout: 3", "}")))

    assert lines[-4:] == ["  tls {", "    timeout: 3", "  }", "}"]
