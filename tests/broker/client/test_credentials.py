"""What cannot be used to get in is said before anything is sent, in one line that holds no secret."""

import logging
from pathlib import Path
from typing import Any

import pytest

from broker.app.exits import ConfigurationError
from broker.client.access import Access
from broker.client.credentials import read_credentials, verify

SEED = "SUAHG43TONZXG43TONZXG43TONZXG43TONZXG43TONZXG43TONZXG4YR6A"


def fails(access: Access) -> str:
    with pytest.raises(ConfigurationError) as raised:
        verify(access)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("option", ["creds", "nkey", "tls_ca", "tls_cert", "tls_key"])
def test_a_file_that_is_not_there_is_named_with_its_option(
    option: str, tls: Path, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    access = {"tls_cert": tls / "client.pem"} if option == "tls_key" else {}

    said = fails(Access(**{**access, option: gone}))

    assert (
        said == f"cannot read {gone}: No such file or directory; check --{option.replace('_', '-')}"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "holds no seed", id="empty"),
        pytest.param("S3CRET!!", "holds no seed", id="not base32"),
        pytest.param(SEED[:-4] + "AAAA", "damaged", id="damaged"),
    ],
)
def test_a_file_without_a_users_seed_is_refused_and_not_shown(
    text: str, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "seed"
    file.write_text(text, "latin-1")

    said = fails(Access(nkey=file))

    assert words in said
    assert not text or text not in said


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


@pytest.mark.parametrize(
    ("access", "words"),
    [
        pytest.param({"creds": Path("a"), "nkey": Path("b")}, "--creds and --nkey", id="two ways"),
        pytest.param(
            {"nkey": Path("a"), "nkey_seed": "s3cret"}, "--nkey and --nkey-seed", id="a seed"
        ),
        pytest.param({"password": "s3cret"}, "come together", id="no user"),
        pytest.param(
            {"tls_ca": Path("a"), "tls_ca_pem": "-----"}, "two ways", id="two authorities"
        ),
        pytest.param({"tls_ca_pem": "-----"}, "no certificate in tls_ca_pem", id="no authority"),
        pytest.param({"tls_ca_pem": "é"}, "no certificate in tls_ca_pem", id="not ASCII"),
    ],
)
def test_what_does_not_go_together_is_refused(access: dict[str, Any], words: str) -> None:
    given = Access(**access)

    assert words in fails(given)
    assert "s3cret" not in f"{fails(given)} {given} {given!r}"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        pytest.param({"tls_key": "client.key"}, "--tls-cert", id="key alone"),
        pytest.param(
            {"tls_cert": "client.pem", "tls_key": "server.key"},
            "KEY_VALUES_MISMATCH",
            id="key of another",
        ),
        pytest.param({"tls_ca": "client.key"}, "no certificate in", id="no authority"),
    ],
)
def test_certificates_that_do_not_go_together_are_refused(
    tls: Path, files: dict[str, str], words: str
) -> None:
    said = fails(Access(**{option: tls / name for option, name in files.items()}))

    assert words in said


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
