"""Reads the key of a store, and looks how the store is encrypted. Writes nothing; says no secret."""

from pathlib import Path

from broker.app.exits import ConfigurationError
from broker.server.conf_encryption import (
    Cipher,
    Encryption,
    Stored,
    cipher_by_key_length,
    refusal,
)
from broker.settings_service import ServiceSettings

__all__ = ["encryption_of"]

_SHORTEST = 16  # bytes


def encryption_of(settings: ServiceSettings, folder: Path) -> Encryption | None:
    """Return how the store in `folder` is encrypted, None for in the clear.

    Raises `ConfigurationError` for a key that cannot be used, and for a store that is something else: nothing is touched.
    """
    file = settings.encryption_key_file
    cipher = None if file is None else Cipher(settings.encryption_cipher)
    if reason := refusal(_look(folder), cipher):
        raise ConfigurationError(f"{folder}: {reason}")
    return None if file is None or cipher is None else Encryption(cipher, _read(file))


def _look(folder: Path) -> Stored:
    plain, ciphers = 0, set()
    for meta in (folder / "jetstream").glob("*/streams/*/meta.inf"):
        try:
            ciphers.add(cipher_by_key_length(meta.with_name("meta.key").stat().st_size))
        except FileNotFoundError:
            plain += 1
        except OSError as error:
            raise ConfigurationError(f"cannot read {meta}: {error.strerror}") from None
    return Stored(plain, frozenset(ciphers))


def _read(file: Path) -> str:
    try:
        key = file.read_text("utf-8").removesuffix("\n")
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {file}: {error.strerror}; check --encryption-key-file"
        ) from None
    except UnicodeDecodeError:
        key = ""
    if len(key.encode()) < _SHORTEST or not key.isprintable():
        raise ConfigurationError(
            f"{file} is no key: it should hold a line of text of at least {_SHORTEST} bytes, as from `openssl rand -hex 32`"
        )
    return key
