"""What the files of an `Access` hold: read whenever a connection is made, so that a new key or certificate takes no restart.

Blocks on the disk, and says what is wrong with a file in one line; never shows what is in it.
"""

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from nats_logship.app.exits import ConfigurationError
from nats_logship.client.access import Access
from nats_logship.client.nkey import InvalidSeed, UserKey, seed_of, user_key

_SETTING = re.compile(r"""^\s*(inbox_prefix|api_prefix)\s*=\s*["'](\S+)["']""", re.MULTILINE)
_TOKEN = re.compile(r"BEGIN NATS USER JWT-+\s+(\S+)\s")


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """What a client shows the broker: a key with or without a JWT, and how TLS is done (None: as the system does it).

    The prefixes are those that the settings name, or else the credential file.
    """

    key: UserKey | None = None
    token: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    inbox_prefix: str = ""
    api_prefix: str = ""


def read_credentials(access: Access) -> ClientCredentials:
    """Read the files; raises `ConfigurationError` for one that cannot be used, and for settings that do not go together."""
    if reason := _contradiction(access):
        raise ConfigurationError(reason)
    option = "--creds" if access.creds else "--nkey" if access.nkey else "--nkey-seed"
    path = access.creds or access.nkey
    text = _bytes(path, option).decode("ascii", "replace") if path else access.nkey_seed
    try:
        key = user_key(seed_of(text)) if path or text else None
    except InvalidSeed as error:
        raise ConfigurationError(f"{path or 'nkey_seed'} {error}; check {option}") from None
    token = _TOKEN.search(text) if access.creds else None
    if access.creds and token is None:
        raise ConfigurationError(f"{path} holds no user JWT; check --creds")
    settings = dict(_SETTING.findall(text))
    return ClientCredentials(
        key,
        token[1] if token else "",
        _context(access) if access.wants_tls else None,
        access.inbox_prefix or settings.get("inbox_prefix", ""),
        access.api_prefix or settings.get("api_prefix", ""),
    )


def _contradiction(access: Access) -> str:
    means = ("creds", "nkey", "nkey_seed", "user")
    given = [f"--{name.replace('_', '-')}" for name in means if getattr(access, name)]
    if len(given) > 1:
        return f"{' and '.join(given)} are two ways to say who this is; give one of them"
    if bool(access.user) != bool(access.password):
        return "--user and --password come together"
    if access.tls_key and not access.tls_cert:
        return "--tls-key is the key of a certificate; give that with --tls-cert"
    if access.tls_ca and access.tls_ca_pem:
        return "--tls-ca and --tls-ca-pem are two ways to say the same; give one of them"
    return ""


def _bytes(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}; check {option}") from None


def _context(access: Access) -> ssl.SSLContext:
    files = {"--tls-ca": access.tls_ca, "--tls-cert": access.tls_cert, "--tls-key": access.tls_key}
    read = {option: _bytes(path, option) for option, path in files.items() if path}
    context = ssl.create_default_context()  # checks the chain and the host's name
    if access.tls_ca or access.tls_ca_pem:
        text = access.tls_ca_pem or read["--tls-ca"].decode("ascii", "ignore")
        try:
            # of an empty text the system's certificates would be trusted
            context = ssl.create_default_context(cadata=text or "-")
        except (ssl.SSLError, ValueError, TypeError):  # the last two of a text that is not ASCII
            name = f"{access.tls_ca}; check --tls-ca" if access.tls_ca else "tls_ca_pem"
            raise ConfigurationError(f"no certificate in {name}") from None
        # a certificate that is named is trusted, also where it is not that of an authority
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if access.tls_cert:
        try:
            # a password is given lest OpenSSL asks for one at the terminal
            context.load_cert_chain(access.tls_cert, access.tls_key, password=lambda: b"")
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or "no certificate with an unlocked key"
            raise ConfigurationError(
                f"cannot use {access.tls_cert}: {reason}; check --tls-cert and --tls-key"
            ) from None
    return context
