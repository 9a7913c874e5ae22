"""The resolved configuration: what does not go together is refused, and the stream fits into its store."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.app.configuration import load
from broker.app.exits import ConfigurationError
from broker.server.conf import ServerConf
from broker.server.resolve import ServerKeys, resolve
from broker.server.store import Space
from broker.settings import BrokerSettings

SPACE = Space(free=10**9, held=0, total=10**10)
ROUTES = ("nats-route://b1:6222", "nats-route://b2:6222")
SECRET = "0123456789abcdef"
ANYWHERE = "0.0.0.0:4222"
sizes = st.integers(0, 10**15)


def resolved(folder: Path, space: Space = SPACE, **options: Any) -> ServerConf:
    given_settings = load(BrokerSettings, {"store_dir": folder, **options}, None)
    return resolve(given_settings, folder, ServerKeys(), space)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"listen": ANYWHERE}, "^--listen 0.0.0.0:4222 .*--allow-anonymous"),
        ({"http": ANYWHERE}, "^--http 0.0.0.0:4222 .*--allow-anonymous"),
        ({"route": ROUTES}, "--cluster"),
        ({"cluster": "logs"}, "--route"),
        ({"cluster": "c", "route": ROUTES, "cluster_listen": ANYWHERE}, "--cluster-secret-file"),
        ({"site": "a", "site_listen": ANYWHERE}, "add site"),
        ({"site": "a", "mirror": "a"}, "name other sites"),
        ({"mirror": "a"}, "takes a --site"),
        ({"site": "a", "site_nkey": "/gone"}, "--site-nkey /gone: No such file"),
        ({"nats": {"port": 1, "max_connections": 2}}, r"\[nats\] port: logbroker sets this"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        resolved(tmp_path, **options)


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        (b"short", 0o600, "openssl"),
        (b"0123456789\n0123456789", 0o600, "openssl"),
        (b"\xff" * 32, 0o600, "is no text"),
        (SECRET.encode(), 0o644, "chmod 600"),
    ],
)
def test_a_secret_that_is_none_is_refused_and_not_shown(
    tmp_path: Path, text: bytes, mode: int, words: str
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(text)
    path.chmod(mode)

    with pytest.raises(ConfigurationError, match=words) as refused:
        resolved(tmp_path, cluster="logs", route=ROUTES, cluster_secret_file=path)

    assert SECRET not in str(refused.value)


@settings(max_examples=40)
@given(sizes, sizes, st.none() | st.integers(1, 10**16))
def test_the_stream_fits_into_the_store_beside_offsets_and_positions(
    tmp_path_factory: pytest.TempPathFactory,
    free: int,
    held: int,
    max_bytes: int | None,
) -> None:
    space = Space(free, held, free + held)
    options = {"max_bytes": max_bytes, "reserve": 0}
    given_options = {name: value for name, value in options.items() if value is not None}
    found = resolved(tmp_path_factory.getbasetemp(), space, **given_options)

    bound = found.topology.max_bytes
    store = max(free + held, 1)
    assert bound is not None
    assert 0 < bound <= max(store - min(1024**3, store // 8), 1)
    assert max_bytes is None or bound <= max_bytes
