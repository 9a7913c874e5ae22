"""What the files of an `Access` hold: read whenever a connection is made, so that a new key or certificate takes no restart.

Blocks on the disk, and says what is wrong with a file in one line; never shows what is in it.
"""

import logging
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path

from broker.app.exits import ConfigurationError
from broker.client.access import Access
from broker.client.nkey import InvalidSeed, UserKey, seed_of, settings_of, token_of, user_key

__all__ = ["ClientCredentials", "read_credentials", "verify"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """What a client shows the broker: a key with or without a JWT, and how TLS is done (None: as the system does it)."""

    key: UserKey | None = None
    token: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    inbox_prefix: str = ""
    """What the subjects begin with on which answers are heard, as the settings or the credential file say."""
    api_prefix: str = ""
    """What the subjects of the JetStream API begin with, likewise."""


def verify(access: Access) -> None:
    """Check before anything is sent that the settings go together and the files can be used; warn of open ones.

    Raises `ConfigurationError`.
    """
    if reason := _contradiction(access):
        raise ConfigurationError(reason)
    read_credentials(access)
    for path in filter(None, (access.creds, access.nkey, access.tls_key)):
        if path.stat().st_mode & stat.S_IROTH:
            logger.warning("%s can be read by everybody on this machine; chmod 600 it", path)


def read_credentials(access: Access) -> ClientCredentials:
    """Read the files; raises `ConfigurationError` for one that is missing, unreadable or holds something else."""
    key, token, settings = _key_of(access)
    return ClientCredentials(
        key,
        token,
        _context(access) if access.wants_tls else None,
        access.inbox_prefix or settings.get("inbox_prefix", ""),
        access.api_prefix or settings.get("api_prefix", ""),
    )


def _key_of(access: Access) -> tuple[UserKey | None, str, dict[str, str]]:
    key, token, settings = None, "", dict[str, str]()
    if path := access.creds or access.nkey:
        option = "--creds" if access.creds else "--nkey"
        text = _bytes(path, option).decode("ascii", "replace")
        try:
            key, settings = user_key(seed_of(text)), settings_of(text)
            token = token_of(text) if access.creds else ""
        except InvalidSeed as error:
            raise ConfigurationError(f"{path} {error}; check {option}") from None
    elif access.nkey_seed:
        try:
            key = user_key(access.nkey_seed.strip())
        except InvalidSeed as error:
            raise ConfigurationError(f"nkey_seed {error}; check --nkey-seed") from None
    return key, token, settings


def _contradiction(access: Access) -> str:
    means = {
        "--creds": access.creds,
        "--nkey": access.nkey,
        "--nkey-seed": access.nkey_seed,
        "--user": access.user,
    }
    given = [option for option, value in means.items() if value]
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
    context = ssl.create_default_context()  # checks the chain and the host's name
    if access.tls_ca or access.tls_ca_pem:
        name = "tls_ca_pem"
        if access.tls_ca:
            name = f"{access.tls_ca}; check --tls-ca"
            _bytes(access.tls_ca, "--tls-ca")
        file, text = str(access.tls_ca) if access.tls_ca else None, access.tls_ca_pem or None
        try:
            context = ssl.create_default_context(cafile=file, cadata=text)
        except (ssl.SSLError, ValueError, TypeError):  # the last two of a text that is not ASCII
            raise ConfigurationError(f"no certificate in {name}") from None
        # a certificate that is named is trusted, also where it is not that of an authority
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if access.tls_cert:
        _load_chain(context, access.tls_cert, access.tls_key)
    return context


def _load_chain(context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    _bytes(cert, "--tls-cert")
    if key:
        _bytes(key, "--tls-key")
    try:
        # a password is given lest OpenSSL asks for one at the terminal
        context.load_cert_chain(cert, key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        files = f"{cert} and {key}" if key else f"{cert} (without --tls-key it must hold the key)"
        reason = getattr(error, "reason", None) or "no certificate, or no key that is not locked"
        raise ConfigurationError(
            f"cannot use {files}: {reason}; check --tls-cert and --tls-key"
        ) from None
