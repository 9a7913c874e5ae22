"""Encryption of a store at rest: whether a store may be run with the key that is given.

Keys and ciphers are never changed in place, though nats-server (2.15.1) offers to: it loses consumers and empty streams by that,
with their sequences. And with a wrong key, or none, it takes a store for empty.
"""

from dataclasses import dataclass, field
from pathlib import Path

from broker.app.exits import ConfigurationError
from broker.server.conf import KEY_VARIABLE
from broker.server.conf_text import quoted
from broker.settings_security import SecuritySettings

__all__ = ["Encryption", "encryption_of"]

_SHORTEST = 16  # bytes
_CIPHERS = {"chacha20": "chachapoly", "aes": "aes"}  # as settings and as nats-server call them
_KEY_SIZES = {72: "chacha20", 64: "aes"}  # seed, nonce and tag of a stream's own key
_RESTORE = (
    "take a `logbroker backup` of it, start with an empty --store-dir and the new key, "
    "and `logbroker restore` there"
)


@dataclass(frozen=True, slots=True)
class Encryption:
    """How a store is encrypted; `cipher` is nats-server's name of one, None for a store in the clear."""

    cipher: str | None = None
    key: str = field(default="", repr=False)

    def environment(self) -> dict[str, str]:
        """Return what nats-server is to find in its environment: it reads a variable as a piece of configuration."""
        return {KEY_VARIABLE: quoted(self.key)} if self.cipher else {}


def encryption_of(settings: SecuritySettings, folder: Path) -> Encryption:
    """Return how the store in `folder` is encrypted.

    Raises `ConfigurationError` for a key that cannot be used, and for a store that is encrypted otherwise.
    """
    file = settings.encryption_key_file
    wanted = settings.encryption_cipher if file else None
    for meta in (folder / "jetstream").glob("*/streams/*/meta.inf"):
        _check_stream(meta, wanted)
    return Encryption(_CIPHERS[settings.encryption_cipher], _read(file)) if file else Encryption()


def _check_stream(meta: Path, wanted: str | None) -> None:
    try:
        found = _KEY_SIZES.get(meta.with_name("meta.key").stat().st_size)
    except FileNotFoundError:
        if wanted:
            raise ConfigurationError(
                f"{meta.parent} is in the clear, and a store is not encrypted in place: {_RESTORE}"
            ) from None
        return
    except OSError as error:
        raise ConfigurationError(f"cannot read {meta}: {error.strerror}") from None
    if wanted is None:
        cipher = f" and encryption_cipher = {found!r}" if found else ""
        raise ConfigurationError(
            f"{meta.parent} is encrypted, and without its key would be taken for empty; give --encryption-key-file{cipher}"
        )
    if found not in {wanted, None}:
        raise ConfigurationError(
            f"{meta.parent} is encrypted with encryption_cipher = {found!r}; give that and its key, or {_RESTORE}"
        )


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
