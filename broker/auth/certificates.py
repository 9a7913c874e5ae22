"""The certificates of a broker on disk: made by its own authority in `DIR/tls`, or brought along by the operator.

A certificate and its key stand in one file, so that a new pair takes the place of the old one in one step, and nobody
ever finds a certificate with another's key. Nothing here is sent anywhere.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.files import Folder, make_folder, open_folder, read_file, write_for_owner
from broker.auth.authority import Authority, UnusableAuthority, names_in

__all__ = ["CertificateEnd", "Pki", "ends_of", "read_authority"]

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
