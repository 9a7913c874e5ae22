"""Seeds of NATS users: makes them, finds them in files, signs with them. Never shows one.

A key is base32 of a prefix, 32 bytes and their CRC-16, as in nats-io/nkeys. Signing needs PyNaCl,
which only hosts with --creds or --nkey must have.
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
    """The text is not a user's seed, or holds none."""


@dataclass(frozen=True, slots=True)
class UserKey:
    """A user's public key (`U…`), and a function that signs the server's nonce, in base64."""

    public: str
    sign: Callable[[str], bytes] = field(repr=False)


def new_seed(raw: bytes = b"") -> str:
    """Return the seed (`SU…`) of 32 bytes, by default random ones."""
    return _encode(_PREFIX + (raw or secrets.token_bytes(_RAW)))


def seed_of(text: str) -> str:
    """Return the seed in a credentials file, seed file or settings file; raises `InvalidSeed`."""
    if found := _FOUND.search(text):
        return found[0]
    raise InvalidSeed("holds no seed of a user (SU…)")


def user_key(seed: str) -> UserKey:
    """Return the key of a seed; raises `InvalidSeed`, and `ConfigurationError` without PyNaCl."""
    body = _decode(seed)
    if body[:2] != _PREFIX or len(body) != len(_PREFIX) + _RAW:
        raise InvalidSeed("holds a damaged seed, or one that is not a user's (SU…)")
    try:
        from nacl.signing import SigningKey
    except ImportError:
        raise ConfigurationError(
            "--creds and --nkey need the package PyNaCl; install nats-logship[nkeys]"
        ) from None
    key = SigningKey(body[2:])
    public = _encode(bytes([_USER]) + bytes(key.verify_key))
    return UserKey(public, lambda nonce: base64.b64encode(key.sign(nonce.encode()).signature))


def is_public(text: str) -> bool:
    """Whether a text has the form and the checksum of a user's public key (`U…`)."""
    body = _decode(text)
    return len(body) == 1 + _RAW and body[0] == _USER


def _encode(body: bytes) -> str:
    return base64.b32encode(body + _checksum(body)).decode().rstrip("=")


def _decode(text: str) -> bytes:
    """Return the prefix and the bytes of a key; empty for a wrong form or checksum."""
    try:
        data = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:
        return b""
    return data[:-2] if _checksum(data[:-2]) == data[-2:] else b""


def _checksum(body: bytes) -> bytes:
    return binascii.crc_hqx(body, 0).to_bytes(2, "little")
