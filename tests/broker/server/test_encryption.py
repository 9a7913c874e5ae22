"""A store is run with its own key or not at all."""

from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError
from broker.server.encryption import encryption_of
from broker.settings_security import SecuritySettings


def settings(file: Path | None) -> SecuritySettings:
    return SecuritySettings().model_copy(update={"encryption_key_file": file})


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


def test_a_new_store_takes_the_key_which_no_file_and_no_repr_shows(
    tmp_path: Path, key: Path
) -> None:
    encryption = encryption_of(settings(key), tmp_path / "store")

    assert (encryption.key, encryption.cipher) == ("0123456789abcdef", "chachapoly")
    assert encryption.environment() == {"LOGSHIP_STORE_KEY": '"0123456789abcdef"'}
    assert encryption.key not in repr(encryption)


def test_a_store_in_the_clear_is_not_encrypted_in_place(tmp_path: Path, key: Path) -> None:
    stream_in(tmp_path)

    assert encryption_of(settings(None), tmp_path).cipher is None
    with pytest.raises(ConfigurationError, match="is not encrypted in place"):
        encryption_of(settings(key), tmp_path)


@pytest.mark.parametrize(("length", "cipher"), [(72, "chacha20"), (64, "aes")])
def test_a_store_without_its_key_is_refused_and_its_cipher_named(
    tmp_path: Path, length: int, cipher: str
) -> None:
    (stream_in(tmp_path) / "meta.key").write_bytes(bytes(length))

    with pytest.raises(ConfigurationError, match=f"encryption_cipher = '{cipher}'$"):
        encryption_of(settings(None), tmp_path)


def test_a_store_of_another_cipher_is_refused(tmp_path: Path, key: Path) -> None:
    (stream_in(tmp_path) / "meta.key").write_bytes(bytes(64))

    with pytest.raises(ConfigurationError, match="is encrypted with encryption_cipher = 'aes'"):
        encryption_of(settings(key), tmp_path)


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 32, b"two\nlines, and long enough"])
def test_what_is_no_key_is_refused(tmp_path: Path, key: Path, content: bytes) -> None:
    key.write_bytes(content)

    with pytest.raises(ConfigurationError, match="is no key"):
        encryption_of(settings(key), tmp_path)


def test_a_key_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*/none: No such file"):
        encryption_of(settings(tmp_path / "none"), tmp_path)
