"""The certificates of brokers, and the private authority that signs them: in `DIR/tls`, or brought along by the operator.

Keys are ECDSA on P-256, which every TLS 1.3 client takes, and which a server signs with at a tenth of RSA's cost. A
certificate and its key stand in one file, so that a new pair takes the place of the old one in one step, and nobody ever
finds a certificate with another's key. Nothing here is sent anywhere.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.files import Folder, make_folder, open_folder, read_file, write_for_owner

__all__ = [
    "Authority",
    "CertificateEnd",
    "Issued",
    "Pki",
    "UnusableAuthority",
    "ends_of",
    "names_in",
    "read_authority",
]

_SKEW = timedelta(hours=1)  # machines whose clock is behind must be able to connect at once
_LONGEST_COMMON_NAME = 64  # RFC 5280, ub-common-name


class UnusableAuthority(ValueError):
    """Bytes that are not a certificate of an authority with its key."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, both PEM; the key is not locked."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Authority:
    """The authority's own certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def found(cls, name: str, now: datetime, valid: timedelta) -> "Authority":
        """Return a new authority, valid from `now` on."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name)
        certificate = (
            _begun(subject, subject, key.public_key(), now, now + valid)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def read(cls, certificate: bytes, key: bytes) -> "Authority":
        """Return the authority that two PEM texts hold; raises `UnusableAuthority`."""
        try:
            parsed = x509.load_pem_x509_certificate(certificate)
            secret = serialization.load_pem_private_key(key, None)
        except (ValueError, TypeError):
            raise UnusableAuthority("no certificate with an unlocked key") from None
        if not isinstance(secret, ec.EllipticCurvePrivateKey):
            raise UnusableAuthority("its key is not an ECDSA key")
        if parsed.public_key() != secret.public_key():
            raise UnusableAuthority("its key belongs to another certificate")
        return cls(parsed, secret)

    def issue(self, names: Iterable[str], now: datetime, valid: timedelta) -> Issued:
        """Return a certificate for `names` (DNS names and IP addresses, the first one is the subject), with a new key.

        It is for a broker, which is server to clients and client to other brokers. It never outlives the authority's own. Raises ValueError for a name that no certificate can hold.
        """
        wanted = tuple(names)
        key = ec.generate_private_key(ec.SECP256R1())
        until = min(now + valid, self.certificate.not_valid_after_utc)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            _begun(_subject(wanted[0]), self.certificate.subject, key.public_key(), now, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(map(_general, wanted)), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return Issued(_pem(certificate), _key_pem(key))

    def as_issued(self) -> Issued:
        """Return the authority's own certificate and key as PEM."""
        return Issued(_pem(self.certificate), _key_pem(self.key))


def names_in(certificate: bytes) -> tuple[str, ...]:
    """Return the DNS names and addresses that a PEM certificate is for, in its order; raises ValueError."""
    parsed = x509.load_pem_x509_certificate(certificate)
    try:
        san = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in san if isinstance(name, x509.DNSName | x509.IPAddress))


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    now: datetime,
    until: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(until)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_LONGEST_COMMON_NAME])])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


_VALID = timedelta(days=365)
_AUTHORITY_VALID = timedelta(days=3650)
_OPEN, _SECRET = 0o644, 0o600


@dataclass(frozen=True, slots=True)
class CertificateEnd:
    """When a certificate ends; `path` is its file, `name` its subject, `names` are whom it is for."""

    path: str
    name: str
    not_after: datetime
    names: tuple[str, ...] = ()


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
        self._make_folder()
        authority = Authority.found(name, now, _AUTHORITY_VALID)
        own = authority.as_issued()
        self._write(self.authority_key, own.key, _SECRET)
        self._write(self.authority, own.certificate, _OPEN)
        return authority

    def adopt(self, authority: Authority) -> None:
        """Take on an authority that was made elsewhere, without its key; raises `OperatorError`."""
        certificate = authority.as_issued().certificate
        if self.authority.exists() and self.read_certificate() != certificate:
            raise OperatorError(f"{self.authority} is another authority already")
        self._make_folder()
        self._write(self.authority, certificate, _OPEN)

    def sign(self, authority: Authority, names: Sequence[str], now: datetime) -> None:
        """Write the certificate of a broker that is reached by `names`, new or anew: then TLS is on. Raises `OperatorError`."""
        try:
            issued = authority.issue(names, now, _VALID)
        except ValueError as error:
            raise ConfigurationError(
                f"{', '.join(names)} cannot stand in a certificate: {error}"
            ) from None
        self._write(self.broker, issued.certificate + issued.key, _SECRET)

    def _make_folder(self) -> None:
        with self._usable(), make_folder(self.folder.parent) as store:
            store.make(self.folder.name).close()

    def _write(self, path: Path, content: bytes, mode: int) -> None:
        """Write a file for the owner of the folder: root makes certificates, and the broker's user reads them."""
        with self._usable(), self._opened() as folder:
            write_for_owner(folder, path.name, content, mode)

    @contextmanager
    def _opened(self) -> Iterator[Folder]:
        # the store belongs to the broker's user, who could put a link in the place of this folder
        with open_folder(self.folder.parent) as store, store.enter(self.folder.name) as folder:
            yield folder

    def _read(self, path: Path) -> bytes:
        try:
            with self._opened() as folder:
                return folder.read(path.name)
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OperatorError(
                f"cannot use {self.folder}: {error.strerror}; check --store-dir and its owner"
            ) from None

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
        return _authority(
            self._read(self.authority), secret, f"{self.authority} and {key or self.authority_key}"
        )


def read_authority(certificate: Path, key: Path) -> Authority:
    """Return the authority of two files that an operator names; raises `ConfigurationError`."""
    return _authority(_read(certificate), _read(key), f"{certificate} and {key}")


def _authority(certificate: bytes, key: bytes, files: str) -> Authority:
    try:
        return Authority.read(certificate, key)
    except UnusableAuthority as error:
        raise ConfigurationError(
            f"{files} are not an authority of `logbroker tls init`: {error}"
        ) from None


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


def _read(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
