"""Which certificates a broker uses."""

from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from broker.server.resolve import tls_of
from broker.settings import BrokerSettings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"server_cert": "gone.pem"}, "No such file"),
        ({"server_cert": "server.key"}, "cannot use"),
        ({"server_key": "server.key"}, "logbroker tls init"),
        ({"client_ca": "authority.pem"}, "logbroker tls init"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, tls: Path, settings: dict[str, str], words: str
) -> None:
    given = {name: tls / file for name, file in settings.items()}

    with pytest.raises(ConfigurationError, match=words):
        tls_of(BrokerSettings.model_validate(given), tmp_path)
