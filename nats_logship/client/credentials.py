"""Reads the files of an `Access` at each connect: a new key or certificate needs no restart.

Blocks on the disk. Errors name the file and the option, and never show the content.
"""

import re
import ssl
from dataclasses import dataclass, field

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.tls_files import NamedFile, is_readable, load_own, read_authorities
from nats_logship.client.access import Access
from nats_logship.client.nkey import InvalidSeed, UserKey, seed_of, user_key

_PREFIX = re.compile(r"""^\s*(inbox_prefix|api_prefix)\s*=\s*["'](\S+)["']""", re.MULTILINE)
_TOKEN = re.compile(r"BEGIN NATS USER JWT-+\s+(\S+)\s")


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """A key with or without a JWT, the TLS context if TLS is required, and the prefixes."""

    key: UserKey | None = None
    token: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    inbox_prefix: str = ""
    api_prefix: str = ""


def read_credentials(access: Access) -> ClientCredentials:
    """Read the files; raises `ConfigurationError` for a bad file and for conflicting options."""
    _refuse_conflicts(access)
    option = "--creds" if access.creds else "--nkey" if access.nkey else "--nkey-seed"
    path = access.creds or access.nkey
    text = NamedFile(path, option).read().decode("ascii", "replace") if path else access.nkey_seed
    try:
        key = user_key(seed_of(text)) if path or text else None
    except InvalidSeed as error:
        raise ConfigurationError(f"{path or 'nkey_seed'} {error}; check {option}") from None
    token = _TOKEN.search(text) if access.creds else None
    if access.creds and token is None:
        raise ConfigurationError(f"{path} holds no user JWT; check --creds")
    prefixes = dict(_PREFIX.findall(text))
    return ClientCredentials(
        key=key,
        token=token[1] if token else "",
        tls=_tls_context(access) if access.wants_tls else None,
        inbox_prefix=access.inbox_prefix or prefixes.get("inbox_prefix", ""),
        api_prefix=access.api_prefix or prefixes.get("api_prefix", ""),
    )


def _refuse_conflicts(access: Access) -> None:
    means = ("creds", "nkey", "nkey_seed", "user")
    given = [f"--{name.replace('_', '-')}" for name in means if getattr(access, name)]
    reason = ""
    if len(given) > 1:
        reason = f"{' and '.join(given)} cannot be given together"
    elif bool(access.user) != bool(access.password):
        reason = "--user and --password must be given together"
    elif access.tls_key and not access.tls_cert:
        reason = "--tls-key needs --tls-cert"
    elif access.tls_ca and access.tls_ca_pem:
        reason = "--tls-ca and --tls-ca-pem cannot be given together"
    if reason:
        raise ConfigurationError(reason)


def _tls_context(access: Access) -> ssl.SSLContext:
    context = ssl.create_default_context()  # checks the chain and the host's name
    if access.tls_ca or access.tls_ca_pem:
        context = ssl.create_default_context(cadata=_read_authorities(access))
        # trust a named certificate even if it is not that of an authority
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if access.tls_cert:
        certificate = NamedFile(access.tls_cert, "--tls-cert")
        key = NamedFile(access.tls_key or access.tls_cert, "--tls-key")
        load_own(context, certificate, key)
    return context


def _read_authorities(access: Access) -> str:
    if access.tls_ca:
        return read_authorities(NamedFile(access.tls_ca, "--tls-ca"))
    if not is_readable(access.tls_ca_pem):
        raise ConfigurationError(
            "tls_ca_pem holds no readable certificate in PEM form; check --tls-ca-pem"
        )
    return access.tls_ca_pem
