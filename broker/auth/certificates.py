"""The certificates of brokers, and the private authority that signs them: in `DIR/tls`, or brought along by the operator.

Keys are ECDSA on P-256, which every TLS 1.3 client takes, and which a server signs with at a tenth of RSA's cost. A
certificate and its key stand in one file, so that a new pair takes the place of the old one in one step, and nobody ever
finds a certificate with another's key. Nothing here is sent anywhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.files import make_folder, open_folder, read_file, write_for_owner

__all__ = ["Authority", "CertificateEnd", "Pki", "ends_of", "names_in", "read_authority"]

_SKEW = timedelta(hours=1)  # machines whose clock is behind must be able to connect at once
_LONGEST_COMMON_NAME = 64  # RFC 5280, ub-common-name
_VALID = timedelta(days=365)
_AUTHORITY_VALID = timedelta(days=3650)
_OPEN, _SECRET = 0o644, 0o600


@dataclass(frozen=True, slots=True)
class Authority:
    """The authority's own certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    def issue(self, names: Sequence[str], now: datetime) -> bytes:
        """Return a certificate for `names` (DNS names and IP addresses, the first one is the subject), with a new key: PEM.

        It is for a broker, which is server to clients and client to other brokers. It never outlives the authority's own.
        Raises ValueError for a name that no certificate can hold.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        until = min(now + _VALID, self.certificate.not_valid_after_utc)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        certificate = (
            _begun(
                _subject(names[0]), self.certificate.subject, key, now, until, is_authority=False
            )
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(map(_general, names)), critical=False)
            .add_extension(signer, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM) + _pem_of(key)


def _founded(name: str, now: datetime) -> Authority:
    """Return a new authority, valid from `now` on."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), _subject(name)
    begun = _begun(subject, subject, key, now, now + _AUTHORITY_VALID, is_authority=True)
    return Authority(begun.sign(key, hashes.SHA256()), key)


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    until: datetime,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    path = 0 if is_authority else None
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=path), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_LONGEST_COMMON_NAME])])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def names_in(certificate: bytes) -> tuple[str, ...]:
    """Return the DNS names and addresses that a PEM certificate is for, in its order; raises ValueError."""
    parsed = x509.load_pem_x509_certificate(certificate)
    try:
        san = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in san if isinstance(name, x509.DNSName | x509.IPAddress))


@dataclass(frozen=True, slots=True)
class CertificateEnd:
    """When a certificate ends; `path` is its file, `name` its subject, `names` are whom it is for."""

    path: str
    name: str
    not_after: datetime
    names: tuple[str, ...] = ()


def ends_of(files: Iterable[Path]) -> tuple[CertificateEnd, ...]:
    """Return when the certificates end that stand first in each file, the soonest first; passes over what holds none."""
    found = []
    for path in files:
        try:
            content = read_file(path)
            certificate = x509.load_pem_x509_certificate(content)
            names = names_in(content)
        except (OSError, ValueError):
            continue
        subject = certificate.subject.rfc4514_string()
        found.append(CertificateEnd(str(path), subject, certificate.not_valid_after_utc, names))
    return tuple(sorted(found, key=lambda end: (end.not_after, end.path)))


def read_authority(certificate: Path, key: Path) -> Authority:
    """Return the authority of two files that an operator names; raises `ConfigurationError`."""
    return _authority(_read(certificate), _read(key), f"{certificate} and {key}")


def _authority(certificate: bytes, key: bytes, files: str) -> Authority:
    reason = "no certificate with an unlocked key"
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        secret = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError):
        secret = None
    if isinstance(secret, ec.EllipticCurvePrivateKey):
        if parsed.public_key() == secret.public_key():
            return Authority(parsed, secret)
        reason = "its key belongs to another certificate"
    raise ConfigurationError(f"{files} are not an authority of `logbroker tls init`: {reason}")


def _read(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class Pki:
    """The folder `DIR/tls` of a store: authority, and the broker's certificate."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The authority's certificate, which every client is given."""
        return self.folder / "authority.pem"

    @property
    def authority_key(self) -> Path:
        """The authority's key; may be kept elsewhere, and is needed only to sign."""
        return self.folder / "authority.key"

    @property
    def broker(self) -> Path:
        """Certificate and key that the server shows."""
        return self.folder / "broker.pem"

    @property
    def own(self) -> Path:
        """Certificate and key that an operator puts here for logbroker itself, where clients need one of another authority."""
        return self.folder / "logbroker.pem"

    @property
    def is_there(self) -> bool:
        """Whether the broker has a certificate here."""
        return self.broker.exists()

    def found(self, name: str, now: datetime) -> Authority:
        """Make a new authority here and return it; raises `OperatorError`, also when there is one already."""
        for path in (self.authority, self.authority_key):
            if path.exists():
                raise OperatorError(
                    f"{path} is there already, and what it signed would be worth nothing without it; "
                    "`logbroker tls renew` makes new certificates"
                )
        authority = _founded(name, now)
        self._write(self.authority_key, _pem_of(authority.key), _SECRET)
        self.adopt(authority)
        return authority

    def adopt(self, authority: Authority) -> None:
        """Take on an authority's certificate, without its key; raises `OperatorError`."""
        certificate = authority.certificate.public_bytes(serialization.Encoding.PEM)
        if self.authority.exists() and self.read_certificate() != certificate:
            raise OperatorError(f"{self.authority} is another authority already")
        self._write(self.authority, certificate, _OPEN)

    def sign(self, authority: Authority, names: Sequence[str], now: datetime) -> None:
        """Write the certificate of a broker that is reached by `names`, new or anew: then TLS is on. Raises `OperatorError`."""
        try:
            issued = authority.issue(names, now)
        except ValueError as error:
            raise ConfigurationError(
                f"{', '.join(names)} cannot stand in a certificate: {error}"
            ) from None
        self._write(self.broker, issued, _SECRET)

    def names(self) -> tuple[str, ...]:
        """Return the names that the broker's certificate is for; raises `ConfigurationError`."""
        try:
            return names_in(self._read(self.broker))
        except ValueError:
            raise ConfigurationError(f"{self.broker} holds no certificate") from None

    def read_certificate(self) -> bytes:
        """Return the authority's certificate, in PEM; raises `ConfigurationError`."""
        return self._read(self.authority)

    def read_authority(self, key: Path | None = None) -> Authority:
        """Return the authority, whose key may be kept elsewhere; raises `ConfigurationError` when it cannot be used."""
        secret = _read(key) if key else self._read(self.authority_key)
        files = f"{self.authority} and {key or self.authority_key}"
        return _authority(self._read(self.authority), secret, files)

    def _write(self, path: Path, content: bytes, mode: int) -> None:
        """Write a file for the owner of the folder: root makes certificates, and the broker's user reads them."""
        try:
            with make_folder(self.folder.parent) as store, store.make(self.folder.name) as folder:
                write_for_owner(folder, path.name, content, mode)
        except OSError as error:
            raise OperatorError(
                f"cannot use {self.folder}: {error.strerror}; check --store-dir and its owner"
            ) from None

    def _read(self, path: Path) -> bytes:
        try:
            # the store belongs to the broker's user, who could put a link in the place of this folder
            with open_folder(self.folder.parent) as store, store.enter(self.folder.name) as folder:
                return folder.read(path.name)
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
