"""A private authority that signs the certificates of brokers. Decides what stands in them; touches no file.

Keys are ECDSA on P-256, which every TLS 1.3 client takes, and which a server signs with at a tenth of RSA's cost.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "Issued", "UnusableAuthority", "names_in"]


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

    def has_signed(self, certificate: bytes) -> bool:
        """Whether a PEM certificate is one of this authority's."""
        try:
            x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True


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
