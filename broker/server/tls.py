"""Which certificates a broker uses: those of the settings, or those of `DIR/tls`, of which its own are renewed in time."""

import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from broker.app.exits import ConfigurationError, OperatorError
from broker.auth.certificates import Pki, ends_of, names_in
from broker.client.access import Access
from broker.server.conf import TlsConf
from broker.settings import SecuritySettings

__all__ = ["TLS_FOLDER", "Security", "renew_certificates", "security_of"]

TLS_FOLDER = "tls"
_NEAR = timedelta(days=30)
"""How long before its end a certificate is renewed, or warned of."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Security:
    """How a broker talks: in the clear where `tls` is None; `own` is how logbroker itself connects."""

    tls: TlsConf | None = None
    own: Access = Access()  # noqa: RUF009 - a frozen value
    files: tuple[Path, ...] = ()
    """Files whose change is a reason to read them again."""


def security_of(settings: SecuritySettings, folder: Path) -> Security:
    """Return what the settings and the store say.

    Raises `ConfigurationError` for files that are missing or cannot be used together.
    """
    pki = Pki(folder / TLS_FOLDER)
    certificate = settings.server_cert or (pki.broker if pki.is_there else None)
    if certificate is None:
        if settings.server_key or settings.client_ca or settings.require_certificates:
            raise ConfigurationError(
                "--server-key, --client-ca and --require-certificates take a broker with a certificate; make one with "
                "`logbroker tls init`, or give --server-cert"
            )
        return Security()
    key = settings.server_key or certificate
    authorities = settings.client_ca or (pki.authority if pki.authority.exists() else None)
    if settings.require_certificates and authorities is None:
        raise ConfigurationError(
            "clients are to show certificates, and no authority says which; give --client-ca"
        )
    name = _check(certificate, key)
    own = pki.own if pki.own.exists() else None
    by_others = settings.require_certificates and settings.client_ca and not settings.server_cert
    if own is None and by_others:
        raise ConfigurationError(
            f"logbroker itself needs a certificate that --client-ca has signed: put it, with its key, into {pki.own}"
        )
    tls = TlsConf(
        str(certificate.absolute()),
        str(key.absolute()),
        None if authorities is None else str(authorities.absolute()),
        settings.require_certificates,
    )
    access = Access(
        tls_ca=certificate,
        tls_cert=own or certificate,
        tls_key=None if own or key == certificate else key,
        tls_name=name,
    )
    files = dict.fromkeys(filter(None, (certificate, key, authorities, own)))
    return Security(tls, access, tuple(files))


def _check(certificate: Path, key: Path) -> str:
    """Return the first name of a certificate that can be used with a key."""
    try:
        # a password is given lest OpenSSL asks for one at the terminal
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            certificate, key, password=lambda: b""
        )
    except (OSError, ValueError) as error:  # SSLError is one of the first
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(
            f"cannot use certificate {certificate} with key {key}: {reason}; check --server-cert and --server-key"
        ) from None
    return next(iter(names_in(certificate.read_bytes())), "")


def renew_certificates(folder: Path, files: Sequence[Path], now: datetime) -> None:
    """Renew those of a broker's own certificates that end within a month, and warn of the others among `files`."""
    pki = Pki(folder / TLS_FOLDER)
    for end in ends_of(files):
        if end.not_after - now >= _NEAR:
            continue
        if pki.authority_key.exists() and end.path == str(pki.broker):
            try:
                pki.sign(pki.read_authority(), pki.names(), now)
            except OperatorError as error:
                logger.warning("cannot renew %s: %s", pki.broker, error)
            else:
                logger.info("renewed %s", pki.broker)
                continue
        verb = "ends" if end.not_after > now else "ended"
        logger.warning("certificate %s %s on %s", end.path, verb, end.not_after)
