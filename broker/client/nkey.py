"""Seeds of NATS users, and the files that they stand in: made, read, checked, and used to sign. Never shows one.

Signing takes PyNaCl (Ed25519 of libsodium), which only hosts with --creds or --nkey need. The form of keys is that of
nats-io/nkeys: base32 of a prefix, the bytes and their CRC-16.
"""

import base64
import binascii
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.app.exits import ConfigurationError

__all__ = [
    "InvalidSeed",
    "UserKey",
    "is_public",
    "new_seed",
    "seed_of",
    "settings_of",
    "token_of",
    "user_key",
]

_SEED, _USER = 18 << 3, 20 << 3
_SEED_BYTES = 32
_SETTING = re.compile(
    r"""^\s*(nkey_seed|inbox_prefix|api_prefix)\s*=\s*["'](\S+)["']""", re.MULTILINE
)
_ARMOUR = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s+(\S+)\s+-{3,}END")


class InvalidSeed(ValueError):
    """A text that is not the seed of a user, or a file that holds none."""


@dataclass(frozen=True, slots=True)
class UserKey:
    """The public key of a user (`U…`) and what signs the server's nonce with its seed, in base64."""

    public: str
    sign: Callable[[str], bytes] = field(repr=False)


def new_seed(raw: bytes = b"") -> str:
    """Return the seed (`SU…`) of a user's key that is made of 32 bytes, by default random ones; raises ValueError."""
    raw = raw or secrets.token_bytes(_SEED_BYTES)
    if len(raw) != _SEED_BYTES:
        raise ValueError(f"a key is made of {_SEED_BYTES} bytes, not of {len(raw)}")
    body = bytes([_SEED | _USER >> 5, (_USER & 31) << 3]) + raw
    return base64.b32encode(body + _checksum(body)).decode().rstrip("=")


def seed_of(text: str) -> str:
    """Return the seed in a credentials file, a seed file or a file of settings; raises `InvalidSeed`."""
    lines = (line.strip() for line in text.splitlines() if line.startswith("S"))
    # a file of settings may hold certificates, armoured too
    found = settings_of(text).get("nkey_seed") or _armoured(text, "USER NKEY SEED")
    if found := found or ("" if "BEGIN" in text else next(lines, "")):
        return found
    raise InvalidSeed("holds no seed")


def settings_of(text: str) -> dict[str, str]:
    """Return the key and the prefixes that a credential file of `logbroker` names; of another file nothing."""
    return dict(_SETTING.findall(text))


def token_of(text: str) -> str:
    """Return the JWT in a credentials file; raises `InvalidSeed`."""
    if token := _armoured(text, "NATS USER JWT"):
        return token
    raise InvalidSeed("holds no user JWT")


def user_key(seed: str) -> UserKey:
    """Return the key of a user's seed; raises `InvalidSeed`, or `ConfigurationError` without PyNaCl."""
    raw = _decode(seed)
    try:
        from nacl.signing import SigningKey
    except ImportError:
        raise ConfigurationError(
            "--creds and --nkey need the package PyNaCl; install nats-logship[nkeys]"
        ) from None
    key = SigningKey(raw)
    body = bytes([_USER]) + bytes(key.verify_key)
    public = base64.b32encode(body + _checksum(body)).decode().rstrip("=")
    return UserKey(public, lambda nonce: base64.b64encode(key.sign(nonce.encode()).signature))


def is_public(text: str) -> bool:
    """Whether a text is the public key of a user (`U…`), as far as its form and checksum can tell."""
    try:
        data = base64.b32decode(text)
    except (binascii.Error, ValueError):
        return False
    body, checksum = data[:-2], data[-2:]
    return len(body) == 1 + _SEED_BYTES and body[0] == _USER and _checksum(body) == checksum


def _armoured(text: str, name: str) -> str:
    return next((value for title, value in _ARMOUR.findall(text) if title == name), "")


def _decode(seed: str) -> bytes:
    try:
        data = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except (binascii.Error, ValueError):
        raise InvalidSeed("holds no key: not base32") from None
    body, checksum = data[:-2], data[-2:]
    if len(body) != 2 + _SEED_BYTES or _checksum(body) != checksum:
        raise InvalidSeed("holds a damaged key")
    kind = (body[0] & 7) << 5 | body[1] >> 3
    if body[0] & 0xF8 != _SEED or kind != _USER:
        raise InvalidSeed("holds a key that is not the seed of a user (SU…)")
    return body[2:]


def _checksum(body: bytes) -> bytes:
    return binascii.crc_hqx(body, 0).to_bytes(2, "little")
