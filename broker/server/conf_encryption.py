"""Encryption of a store at rest: what a store may be run with, and the lines of nats-server's configuration. Decides only.

Keys and ciphers are never changed in place, though nats-server (2.15.1) offers to: it loses consumers and empty streams
by that, with their sequences. And with a wrong key, or none, it takes a store for empty.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum

from broker.server.quoting import quoted

__all__ = [
    "KEY_VARIABLE",
    "Cipher",
    "Encryption",
    "Stored",
    "cipher_by_key_length",
    "refusal",
    "render_encryption",
]

KEY_VARIABLE = "LOGSHIP_STORE_KEY"
"""By which nats-server gets the key: neither a file of ours nor a command line holds it."""

_WAY = "take a `logbroker backup` of it, start with an empty --store-dir and the new key, and `logbroker restore` there"


class Cipher(Enum):
    """A cipher, as settings call it."""

    CHACHA20 = "chacha20"
    AES = "aes"


_NAMES = {Cipher.CHACHA20: "chachapoly", Cipher.AES: "aes"}
_KEY_LENGTHS = {72: Cipher.CHACHA20, 64: Cipher.AES}  # seed, nonce and tag of a stream's own key


@dataclass(frozen=True, slots=True)
class Stored:
    """What a store holds: streams in the clear, and the ciphers of those that are not; None for one that is not known."""

    plain: int = 0
    ciphers: frozenset[Cipher | None] = frozenset()


@dataclass(frozen=True, slots=True)
class Encryption:
    """How a store is encrypted."""

    cipher: Cipher
    key: str = field(repr=False)

    def environment(self) -> dict[str, str]:
        """Return what nats-server is to find in its environment: it reads a variable as a piece of configuration."""
        return {KEY_VARIABLE: quoted(self.key)}


def cipher_by_key_length(length: int) -> Cipher | None:
    """Return by which cipher a stream is encrypted whose own key is a file of so many bytes."""
    return _KEY_LENGTHS.get(length)


def refusal(stored: Stored, wanted: Cipher | None) -> str:
    """Return why a store may not be run with the cipher wanted, None for no key; empty when it may."""
    if stored.ciphers and wanted is None:
        return (
            "the store is encrypted, and without its key it would be taken for empty; give --encryption-key-file "
            f"{_told(stored.ciphers)}"
        )
    if stored.plain and wanted is not None:
        return f"the store holds streams in the clear, and is not encrypted in place: {_WAY}"
    if wanted is not None and stored.ciphers - {wanted, None}:
        return f"the store is encrypted otherwise; give {_told(stored.ciphers)} with its key, or {_WAY}"
    return ""


def _told(ciphers: Collection[Cipher | None]) -> str:
    return " ".join(f"--encryption-cipher {one.value}" for one in ciphers if one)


def render_encryption(cipher: Cipher | None) -> list[str]:
    """Return the lines within JetStream's section."""
    return [] if cipher is None else [f"  cipher: {_NAMES[cipher]}", f"  key: ${KEY_VARIABLE}"]
