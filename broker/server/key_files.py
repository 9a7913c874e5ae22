"""Reads the files of secrets, keys and certificates that the settings name."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.auth.certificates import Pki, parse_names
from broker.settings import BrokerSettings
from nats_logship.app.exits import ConfigurationError
from nats_logship.app.secret_files import check_kind
from nats_logship.client.access import Access
from nats_logship.client.nkey import InvalidSeed, seed_of

_LEAST_SECRET = 16  # bytes


@dataclass(frozen=True, slots=True)
class TlsConf:
    """The TLS of a server: absolute paths of PEM files, and how logbroker itself connects.

    The certificates in `authorities` verify those of clients and other brokers.
    """

    certificate: Path
    key: Path
    authorities: Path | None
    access: Access

    @property
    def files(self) -> tuple[Path, ...]:
        """The files to read again when they change."""
        named = (self.certificate, self.key, self.authorities)
        return tuple(dict.fromkeys(filter(None, named)))

    def as_section(self, *, verify: bool) -> dict[str, Any]:
        """Return the `tls` section of a listener; with `verify` a client needs a certificate."""
        return {
            "cert_file": self.certificate,
            "key_file": self.key,
            "ca_file": self.authorities,
            "min_version": "1.3",
            "timeout": 5,
            "verify": verify or None,
        }


def resolve_tls(settings: BrokerSettings, folder: Path) -> TlsConf | None:
    """Return the TLS of a broker, None for a broker without a certificate.

    The certificate is that of the settings, or else of the store in `folder`. Raises
    `ConfigurationError`. nats-server itself reports a key that does not fit the certificate.
    """
    pki = Pki(folder)
    certificate = settings.server_cert or (pki.broker if pki.broker.exists() else None)
    if certificate is None:
        if settings.server_key or settings.client_ca:
            raise ConfigurationError(
                "--server-key and --client-ca need a certificate: give --server-cert, or make one "
                "with `logbroker tls init`"
            )
        return None
    certificate = certificate.absolute()
    authorities = settings.client_ca or (pki.authority if pki.authority.exists() else None)
    try:
        name = next(iter(parse_names(certificate.read_bytes())), "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"cannot use certificate {certificate}: {reason}") from None
    # trust the authority in place of the certificate: after a renewal the running server may still
    # show the old one
    is_ours = certificate == pki.broker.absolute() and pki.authority.exists()
    trusted = pki.authority.absolute() if is_ours else certificate
    return TlsConf(
        certificate=certificate,
        key=(settings.server_key or certificate).absolute(),
        authorities=authorities and authorities.absolute(),
        access=Access(tls_ca=trusted, tls_name=name),
    )


def read_secret(path: Path, option: str) -> str:
    """Return the line in the file of an option.

    Raises `ConfigurationError` if the line is shorter than 16 bytes, or not text.
    """
    text = _read_text(path, option).removesuffix("\n")
    if len(text.encode()) < _LEAST_SECRET or not text.isprintable():
        raise ConfigurationError(
            f"{option} {path}: should hold a line of at least {_LEAST_SECRET} bytes, as from "
            "`openssl rand -hex 32`"
        )
    return text


def read_cluster_secret(path: Path) -> str:
    """Return the secret of a cluster; raises `ConfigurationError` if others may read its file."""
    secret = read_secret(path, "--cluster-secret-file")
    if path.stat().st_mode & 0o007:
        raise ConfigurationError(
            f"--cluster-secret-file {path}: should be readable by its owner alone (`chmod 600`)"
        )
    return secret


def read_site_seed(path: Path) -> str:
    """Return the seed in a site's credential file; raises `ConfigurationError`."""
    text = _read_text(path, "--site-nkey")
    check_kind(path, text, "--site-nkey", ("site",))
    try:
        return seed_of(text)
    except InvalidSeed as error:
        raise ConfigurationError(f"--site-nkey {path}: {error}") from None


def _read_text(path: Path, option: str) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not text"
        raise ConfigurationError(f"{option} {path}: {reason}") from None
