"""Makes TLS certificates of brokers, and the authority in `DIR/tls` that signs them.

Keys are ECDSA on P-256: every TLS 1.3 client takes them, and signing costs a tenth of RSA's. A
certificate and its key are in one file, so one rename replaces both.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker.report import Certificate
from nats_logship.app.exits import ConfigurationError
from nats_logship.app.files import (
    make_folder,
    open_folder,
    read_file,
    report_errors,
    write_for_owner,
)

_SKEW = timedelta(hours=1)  # for machines whose clock is behind
_LONGEST_COMMON_NAME = 64  # RFC 5280, ub-common-name
_VALID = timedelta(days=365)
_AUTHORITY_VALID = timedelta(days=3650)
_FORBIDDEN_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "encipher_only", "decipher_only"),
)
_OPEN, _SECRET = 0o644, 0o600
_PEM = serialization.Encoding.PEM


class Authority(NamedTuple):
    """An authority's own certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def _issue(
    names: Sequence[str], key: ec.EllipticCurvePrivateKey, now: datetime, by: Authority | None
) -> x509.Certificate:
    """Return a certificate for `names`, DNS names and IP addresses; the first one is the subject.

    The authority `by` signs a broker's certificate, which is valid for servers and clients, and
    expires no later than the authority's own. With None the certificate is that of an authority and
    signs itself. Raises ValueError for a name that no certificate can hold.
    """
    named = x509.NameAttribute(NameOID.COMMON_NAME, names[0][:_LONGEST_COMMON_NAME])
    subject, public = x509.Name([named]), key.public_key()
    until = min(now + _VALID, by.certificate.not_valid_after_utc) if by else now + _AUTHORITY_VALID
    issuer = by.certificate.subject if by else subject
    basics = x509.BasicConstraints(ca=by is None, path_length=None if by else 0)
    begun = (
        x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(until)
        .add_extension(basics, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    if by is None:
        no = dict.fromkeys(_FORBIDDEN_USES, False)
        usage = x509.KeyUsage(**no, key_cert_sign=True, crl_sign=True)
        return begun.add_extension(usage, critical=True).sign(key, hashes.SHA256())
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key())
    return (
        begun.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(map(_parse_name, names)), critical=False)
        .add_extension(signer, critical=False)
        .sign(by.key, hashes.SHA256())
    )


def _parse_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _encode_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    form, protection = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(_PEM, form, protection)


def parse_names(certificate: bytes) -> tuple[str, ...]:
    """Return the DNS names and addresses of a PEM certificate, in its order; raises ValueError."""
    parsed = x509.load_pem_x509_certificate(certificate)
    try:
        san = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in san if isinstance(name, x509.DNSName | x509.IPAddress))


def read_expiries(files: Iterable[Path]) -> tuple[Certificate, ...]:
    """Return when the first certificate of each file expires, the soonest first.

    Files without a certificate are left out.
    """
    found = []
    for path in files:
        try:
            certificate = x509.load_pem_x509_certificate(read_file(path))
        except (OSError, ValueError):
            continue
        found.append(Certificate(path=str(path), not_after=certificate.not_valid_after_utc))
    return tuple(sorted(found, key=lambda end: (end.not_after, end.path)))


class Pki:
    """The folder `DIR/tls` of a store: the authority, and the broker's certificate."""

    def __init__(self, store: Path) -> None:
        """Read nothing yet."""
        self.folder = store / "tls"
        self.authority = self.folder / "authority.pem"
        """The authority's certificate, which every client needs."""
        self.authority_key = self.folder / "authority.key"
        """The authority's key; needed only to sign, and may be kept elsewhere."""
        self.broker = self.folder / "broker.pem"
        """Certificate and key that the server shows."""

    def create_authority(self, name: str, now: datetime) -> Authority:
        """Create the authority and return it; raises `OperatorError`."""
        key = ec.generate_private_key(ec.SECP256R1())
        authority = Authority(_issue([name], key, now, None), key)
        self._write(self.authority_key, _encode_key(key), _SECRET)
        self._write(self.authority, authority.certificate.public_bytes(_PEM), _OPEN)
        return authority

    def sign(self, authority: Authority, names: Sequence[str], now: datetime) -> None:
        """Write a certificate for a broker that is reached by `names`, in place of an earlier one.

        A broker with a certificate takes TLS connections only. Raises `OperatorError`.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            issued = _issue(names, key, now, authority)
        except ValueError as error:
            raise ConfigurationError(
                f"no certificate can hold the names {', '.join(names)}: {error}"
            ) from None
        self._write(self.broker, issued.public_bytes(_PEM) + _encode_key(key), _SECRET)

    def read_names(self) -> tuple[str, ...]:
        """Return the names of the broker's certificate; raises `ConfigurationError`."""
        try:
            return parse_names(self.read(self.broker))
        except ValueError:
            raise ConfigurationError(f"{self.broker} holds no certificate") from None

    def read_authority(self) -> Authority:
        """Return the authority; raises `ConfigurationError` if it cannot be used."""
        pem, secret_pem = self.read(self.authority), self.read(self.authority_key)
        try:
            parsed = x509.load_pem_x509_certificate(pem)
            secret = serialization.load_pem_private_key(secret_pem, None)
        except (ValueError, TypeError):
            secret = None
        if (
            isinstance(secret, ec.EllipticCurvePrivateKey)
            and parsed.public_key() == secret.public_key()
        ):
            return Authority(parsed, secret)
        raise ConfigurationError(
            f"{self.authority} and {self.authority_key} are not an authority of `logbroker tls "
            "init`: they should hold a certificate and its key without a password"
        )

    def _write(self, path: Path, content: bytes, mode: int) -> None:
        """Write a file for the owner of the store, who is the broker's user."""
        with (
            report_errors(self.folder),
            make_folder(self.folder.parent) as store,
            store.make(self.folder.name) as folder,
        ):
            write_for_owner(folder, path.name, content, mode)

    def read(self, path: Path) -> bytes:
        """Return the content of a file of the folder; raises `ConfigurationError`."""
        try:
            # the store belongs to the broker's user, who could replace this folder by a link
            with open_folder(self.folder.parent) as store, store.enter(self.folder.name) as folder:
                return folder.read(path.name)
        except OSError as error:
            raise ConfigurationError(
                f"cannot read {path}: {error.strerror}; check --store-dir, or make the file with "
                "`logbroker tls init`"
            ) from None
