from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from broker.server.conf_encryption import Cipher
from broker.server.encrypting import encryption_of
from broker.settings_service import ServiceSettings


def settings(file: Path | None) -> ServiceSettings:
    return ServiceSettings().model_copy(update={"encryption_key_file": file})


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text("0123456789abcdef\n", "utf-8")
    return file


def stream_in(store: Path) -> Path:
    folder = store / "jetstream" / "LOGS" / "streams" / "LOGS"
    folder.mkdir(parents=True)
    (folder / "meta.inf").write_bytes(b"{}")
    return folder


def test_a_new_store_takes_the_key_as_it_stands_in_its_line(tmp_path: Path, key: Path) -> None:
    encryption = encryption_of(settings(key), tmp_path / "store")

    assert encryption is not None
    assert (encryption.key, encryption.cipher) == ("0123456789abcdef", Cipher.CHACHA20)


def test_a_store_in_the_clear_is_not_encrypted_in_place(tmp_path: Path, key: Path) -> None:
    stream_in(tmp_path)

    assert encryption_of(settings(None), tmp_path) is None
    with pytest.raises(ConfigurationError, match="is not encrypted in place"):
        encryption_of(settings(key), tmp_path)


@pytest.mark.parametrize(("length", "cipher"), [(72, "chacha20"), (64, "aes")])
def test_the_cipher_of_a_store_is_known(
    tmp_path: Path, key: Path, length: int, cipher: str
) -> None:
    (stream_in(tmp_path) / "meta.key").write_bytes(bytes(length))

    with pytest.raises(ConfigurationError, match=f"--encryption-cipher {cipher}$"):
        encryption_of(settings(None), tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"short", b"\xff" * 32, b"two\nlines, and long enough", b"\n" * 20]
)
def test_what_is_no_key_is_refused(tmp_path: Path, key: Path, content: bytes) -> None:
    key.write_bytes(content)

    with pytest.raises(ConfigurationError, match="is no key"):
        encryption_of(settings(key), tmp_path)


def test_a_key_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*/none: No such file"):
        encryption_of(settings(tmp_path / "none"), tmp_path)
