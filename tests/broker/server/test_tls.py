"""Which certificates a broker uses, and that its own are renewed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from broker.auth.certificates import Pki, ends_of
from broker.server.resolve import renew_certificate, tls_of
from broker.settings import BrokerSettings

NOW = datetime.now(UTC)  # noqa: TID251 - what OpenSSL goes by


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


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    pki = Pki(tmp_path)
    pki.sign(pki.found("ours", NOW), ["broker1.example.net"], NOW)
    return pki


def test_a_brokers_certificate_is_renewed_a_month_before_its_end_with_the_same_names(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    first, later = pki.broker.read_bytes(), NOW + timedelta(days=336)

    renew_certificate(pki.folder.parent, NOW + timedelta(days=334))
    assert pki.broker.read_bytes() == first

    renew_certificate(pki.folder.parent, later)
    assert pki.names() == ("broker1.example.net",)
    (end,) = ends_of([pki.broker])
    assert end.not_after > later + timedelta(days=364)

    pki.authority_key.write_text("nonsense")
    renew_certificate(pki.folder.parent, later + timedelta(days=360))
    assert "cannot renew" in caplog.text
