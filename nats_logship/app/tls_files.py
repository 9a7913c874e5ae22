"""Puts certificates and keys of files into a TLS context.

Each error is a `ConfigurationError` that names the file, the option, and what to do.
"""

import re
import ssl
from pathlib import Path
from typing import NamedTuple

from nats_logship.app.exits import ConfigurationError

_CERTIFICATE = re.compile(rb"-----BEGIN (TRUSTED |X509 )?CERTIFICATE-----")
_KEY = re.compile(rb"-----BEGIN ([A-Z]+ )*PRIVATE KEY-----")


class NamedFile(NamedTuple):
    """A file, and the option that names it."""

    path: Path
    option: str

    def read(self) -> bytes:
        """Return the content; raises `ConfigurationError`."""
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise ConfigurationError(
                f"cannot read {self.path}: {error.strerror}; check {self.option}"
            ) from None


def load_own(context: ssl.SSLContext, certificate: NamedFile, key: NamedFile) -> None:
    """Load our certificate and its key, which may be in the same file.

    Raises `ConfigurationError`.
    """
    _require(_CERTIFICATE, "certificate", certificate)
    _require(_KEY, "private key", key)
    is_asked = False

    def give_password() -> bytes:
        # without this OpenSSL would ask for the password at the terminal
        nonlocal is_asked
        is_asked = True
        return b""

    try:
        context.load_cert_chain(certificate.path, key.path, password=give_password)
    except (OSError, ValueError) as error:
        if is_asked:
            raise ConfigurationError(
                f"the private key in {key.path} has a password, which no program may ask for; give "
                f"{key.option} a key without one (`openssl pkey -in {key.path} -out FILE`)"
            ) from None
        both = " and ".join(dict.fromkeys((certificate.option, key.option)))
        if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
            reason = f"the private key in {key.path} is not that of the certificate in"
            raise ConfigurationError(f"{reason} {certificate.path}; check {both}") from None
        names = " or ".join(dict.fromkeys((str(certificate.path), str(key.path))))
        raise ConfigurationError(f"cannot use {names}: it is damaged; check {both}") from None


def read_authorities(authorities: NamedFile) -> str:
    """Return the certificates in a file; raises `ConfigurationError`."""
    text = authorities.read().decode("ascii", "ignore")
    if not is_readable(text):
        _require(_CERTIFICATE, "certificate", authorities)
        raise ConfigurationError(
            f"a certificate in {authorities.path} is damaged; check {authorities.option}"
        )
    return text


def is_readable(authorities: str) -> bool:
    """Whether a text holds certificates in PEM form, and no damaged one."""
    try:
        # with an empty text Python would trust the system's certificates
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=authorities or "-")
    except (ssl.SSLError, ValueError, TypeError):  # the last two if the text is not ASCII
        return False
    return True


def _require(begin: re.Pattern[bytes], noun: str, file: NamedFile) -> None:
    if not begin.search(file.read()):
        raise ConfigurationError(
            f"{file.path} holds no {noun} in PEM form (-----BEGIN …); check {file.option}"
        )
