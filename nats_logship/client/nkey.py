"""Seeds of NATS users, and the files that they are in: made, found, and used to sign. Never shows one.

Signing takes PyNaCl (Ed25519 of libsodium), which only hosts with --creds or --nkey need. The form of keys is that of
nats-io/nkeys: base32 of a prefix, the bytes and their CRC-16.
"""

import base64
import binascii
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from nats_logship.app.exits import ConfigurationError

_SEED, _USER = 18 << 3, 20 << 3
_PREFIX = bytes([_SEED | _USER >> 5, (_USER & 31) << 3])
_RAW = 32  # bytes
_FOUND = re.compile(r"\bSU[A-Z2-7]{56}\b")


class InvalidSeed(ValueError):
    """A text that is not the seed of a user, or a file that holds none."""


@dataclass(frozen=True, slots=True)
class UserKey:
    """The public key of a user (`U…`) and what signs the server's nonce with its seed, in base64."""

    public: str
    sign: Callable[[str], bytes] = field(repr=False)


def new_seed(raw: bytes = b"") -> str:
    """Return the seed (`SU…`) of a user's key that is made of 32 bytes, by default random ones."""
    return _encoded(_PREFIX + (raw or secrets.token_bytes(_RAW)))


def seed_of(text: str) -> str:
    """Return the seed in a credentials file, a seed file or a file of settings; raises `InvalidSeed`."""
    if found := _FOUND.search(text):
        return found[0]
    raise InvalidSeed("holds no seed of a user (SU…)")


def user_key(seed: str) -> UserKey:
    """Return the key of a user's seed; raises `InvalidSeed`, or `ConfigurationError` without PyNaCl."""
    body = _decoded(seed)
    if body[:2] != _PREFIX or len(body) != len(_PREFIX) + _RAW:
        raise InvalidSeed("holds a damaged seed, or one that is not a user's (SU…)")
    try:
        from nacl.signing import SigningKey
    except ImportError:
        raise ConfigurationError(
            "--creds and --nkey need the package PyNaCl; install nats-logship[nkeys]"
        ) from None
    key = SigningKey(body[2:])
    public = _encoded(bytes([_USER]) + bytes(key.verify_key))
    return UserKey(public, lambda nonce: base64.b64encode(key.sign(nonce.encode()).signature))


def is_public(text: str) -> bool:
    """Whether a text is the public key of a user (`U…`), as far as its form and checksum can tell."""
    body = _decoded(text)
    return len(body) == 1 + _RAW and body[0] == _USER


def _encoded(body: bytes) -> str:
    return base64.b32encode(body + _checksum(body)).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    """Return the bytes of a key with its prefix, none where its form or its checksum is wrong."""
    try:
        data = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:
        return b""
    return data[:-2] if _checksum(data[:-2]) == data[-2:] else b""


def _checksum(body: bytes) -> bytes:
    return binascii.crc_hqx(body, 0).to_bytes(2, "little")
