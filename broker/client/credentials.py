"""What the files of an `Access` hold: read whenever a connection is made, so that a new key or certificate takes no restart.

Blocks on the disk, and says what is wrong with a file in one line; never shows what is in it.
"""

import logging
import ssl
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from broker.app.exits import ConfigurationError
from broker.client.access import Access
from broker.client.nkey import InvalidSeed, UserKey, seed_of, settings_of, token_of, user_key

__all__ = ["Credentials", "read_credentials", "verify"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Credentials:
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


def read_credentials(access: Access) -> Credentials:
    """Read the files; raises `ConfigurationError` for one that is missing, unreadable or holds something else."""
    key, token, settings = _key_of(access)
    return Credentials(
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
    ways = list(_ways(access))
    if len(ways) > 1:
        return f"{' and '.join(ways)} are two ways to say who this is; give one of them"
    if bool(access.user) != bool(access.password):
        return "--user and --password come together"
    if access.tls_key and not access.tls_cert:
        return "--tls-key is the key of a certificate; give that with --tls-cert"
    if access.tls_ca and access.tls_ca_pem:
        return "--tls-ca and --tls-ca-pem are two ways to say the same; give one of them"
    if access.tls_cert and access.tls_cert_pem:
        return "--tls-cert and --tls-cert-pem are two ways to say the same; give one of them"
    return ""


def _ways(access: Access) -> Iterator[str]:
    if access.creds:
        yield "--creds"
    if access.nkey:
        yield "--nkey"
    if access.nkey_seed:
        yield "--nkey-seed"
    if access.user:
        yield "--user"


def _bytes(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}; check {option}") from None


def _context(access: Access) -> ssl.SSLContext:
    context = ssl.create_default_context()  # checks the chain and the host's name
    if access.tls_ca:
        _bytes(access.tls_ca, "--tls-ca")
        wrong = f"{access.tls_ca} holds no certificate; check --tls-ca"
        context = _trusting(wrong, cafile=str(access.tls_ca))
    elif access.tls_ca_pem:
        context = _trusting("tls_ca_pem holds no certificate", cadata=access.tls_ca_pem)
    if access.tls_cert:
        _bytes(access.tls_cert, "--tls-cert")
        _load_own(context, access.tls_cert, access.tls_key)
    elif access.tls_cert_pem:
        _load_text(context, access.tls_cert_pem)
    return context


def _trusting(wrong: str, cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    except (ssl.SSLError, ValueError, TypeError):  # the last two of a text that is not ASCII
        raise ConfigurationError(wrong) from None
    # a certificate that is named is trusted, also where it is not that of an authority
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _load_text(context: ssl.SSLContext, text: str) -> None:
    # OpenSSL takes a certificate with its key from a file alone; this one is nobody else's, and gone at once
    with tempfile.NamedTemporaryFile("w", prefix="logship-", suffix=".pem") as file:
        file.write(text)
        file.flush()
        try:
            context.load_cert_chain(file.name, password=lambda: b"")
        except (ssl.SSLError, ValueError) as error:
            reason = (
                getattr(error, "reason", None) or "no certificate, or no key that is not locked"
            )
            raise ConfigurationError(f"cannot use tls_cert_pem: {reason}") from None


def _load_own(context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    if key:
        _bytes(key, "--tls-key")
    try:
        # a password is given lest OpenSSL asks for one at the terminal
        context.load_cert_chain(cert, key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "no certificate, or no key that is not locked"
        place = f"{cert} and {key}" if key else f"{cert} (without --tls-key it must hold the key)"
        raise ConfigurationError(
            f"cannot use {place}: {reason}; check --tls-cert and --tls-key"
        ) from None
