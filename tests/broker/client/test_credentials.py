"""What cannot be used to get in is said before anything is sent, in one line that holds no secret."""

import logging
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from broker.client.access import Access
from broker.client.credentials import read_credentials, verify

SEED = "SUAHG43TONZXG43TONZXG43TONZXG43TONZXG43TONZXG43TONZXG4YR6A"


FILES = {"empty": "", "not-base32": "S3CRET!!", "damaged": SEED[:-4] + "AAAA"}


@pytest.mark.parametrize(
    ("access", "words"),
    [
        *(({f"{one}": "gone"}, f"No such file.*; check --{one}") for one in ("creds", "nkey")),
        *(({f"tls_{one}": "gone"}, f"No such file.*; check --tls-{one}") for one in ("ca", "cert")),
        ({"tls_cert": "client.pem", "tls_key": "gone"}, "No such file.*; check --tls-key"),
        ({"nkey": "empty"}, "holds no seed"),
        ({"nkey": "not-base32"}, "holds no seed"),
        ({"nkey": "damaged"}, "damaged"),
        ({"creds": "empty", "nkey": "empty"}, "--creds and --nkey"),
        ({"nkey": "empty", "nkey_seed": "s3cret"}, "--nkey and --nkey-seed"),
        ({"password": "s3cret"}, "come together"),
        ({"tls_ca": "client.pem", "tls_ca_pem": "-----"}, "two ways"),
        ({"tls_ca_pem": "-----"}, "no certificate in tls_ca_pem"),
        ({"tls_ca_pem": "é"}, "no certificate in tls_ca_pem"),
        ({"tls_ca": "client.key"}, "no certificate in"),
        ({"tls_ca": "empty"}, "no certificate in"),
        ({"tls_key": "client.key"}, "--tls-cert"),
        ({"tls_cert": "client.pem", "tls_key": "server.key"}, "KEY_VALUES_MISMATCH"),
    ],
)
def test_what_cannot_get_in_is_refused_in_one_line_without_a_secret(
    access: dict[str, str], words: str, tls: Path, tmp_path: Path
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    texts = {"nkey_seed", "password", "tls_ca_pem"}
    folder = {name: tls if "." in file else tmp_path for name, file in access.items()}
    given = Access(
        **{one: file if one in texts else folder[one] / file for one, file in access.items()}
    )

    with pytest.raises(ConfigurationError, match=words) as raised:
        verify(given)

    shown = f"{raised.value} {given} {given!r}"
    assert "\n" not in shown
    assert not any(secret in shown for secret in ("s3cret", "S3CRET", SEED[:20]))


def test_a_seed_is_found_in_a_file_of_settings(tmp_path: Path, tls: Path) -> None:
    file = tmp_path / "web01.toml"
    authority = (tls / "authority.pem").read_text()
    file.write_text(
        f'# a credential\nhost = "Sally"\ntls_ca_pem = """\n{authority}"""\nnkey_seed = "{SEED}"\n'
    )

    by_file, by_text = (read_credentials(a) for a in (Access(nkey=file), Access(nkey_seed=SEED)))

    assert by_file.key is not None
    assert by_text.key is not None
    assert by_file.key.public == by_text.key.public


def test_a_secret_that_everybody_can_read_is_warned_about(
    tls: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = tmp_path / "client.key"
    key.write_bytes((tls / "client.key").read_bytes())
    access = Access(tls_cert=tls / "client.pem", tls_key=key)

    with caplog.at_level(logging.WARNING):
        key.chmod(0o600)
        verify(access)
        quiet = list(caplog.messages)
        key.chmod(0o644)
        verify(access)

    assert quiet == []
    assert caplog.messages == [f"{key} can be read by everybody on this machine; chmod 600 it"]
