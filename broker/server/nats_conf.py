"""Builds the text of nats-server's configuration file from settings, TLS and accounts.

Reads the files of secrets, keys and certificates that the settings name.

nats-server (2.15.1) reads JSON, except the escapes of control characters. It refuses a setting
that it does not know, at a start and at a reload.
"""

import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from broker.auth.accounts import LOGS, Section
from broker.auth.certificates import Pki, parse_names
from broker.settings import BrokerSettings
from nats_logship.app.address import Address
from nats_logship.app.exits import ConfigurationError
from nats_logship.app.secret_files import check_kind
from nats_logship.app.tls_files import NamedFile, load_own, read_authorities
from nats_logship.client.access import Access
from nats_logship.client.nkey import InvalidSeed, seed_of
from nats_logship.wire.streams import MAX_PAYLOAD, SLOWEST_LINK

_LEAST_SECRET = 16  # bytes
_STORE_FILES = "the files of `logbroker tls` in the store"


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
    `ConfigurationError` for files that nats-server could not use.
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
    authorities = authorities and authorities.absolute()
    key = (settings.server_key or certificate).absolute()
    name = _check_files(settings, certificate, key, authorities)
    # trust the authority in place of the certificate: after a renewal the running server may still
    # show the old one
    is_ours = certificate == pki.broker.absolute() and pki.authority.exists()
    trusted = pki.authority.absolute() if is_ours else certificate
    return TlsConf(
        certificate=certificate,
        key=key,
        authorities=authorities,
        access=Access(tls_ca=trusted, tls_name=name),
    )


def _check_files(
    settings: BrokerSettings, certificate: Path, key: Path, authorities: Path | None
) -> str:
    """Return the first name in the certificate; raises `ConfigurationError` for unusable files."""
    own = NamedFile(certificate, "--server-cert" if settings.server_cert else _STORE_FILES)
    its_key = NamedFile(key, "--server-key" if settings.server_cert else _STORE_FILES)
    load_own(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), own, its_key)
    if authorities:
        option = "--client-ca" if settings.client_ca else _STORE_FILES
        read_authorities(NamedFile(authorities, option))
    try:
        return next(iter(parse_names(own.read())), "")
    except ValueError as error:
        raise ConfigurationError(
            f"cannot read the names in {certificate}: {error}; check {own.option}"
        ) from None


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


KEY_VARIABLE = "LOGSHIP_STORE_KEY"
"""The environment variable with the key of an encrypted store, so that no file of ours holds it."""

_CLUSTER_USER = "logbroker"
# messages that may wait for a stream. nats-server refuses further ones, and shippers send those
# again. A stream stores 200 to 3,000 messages a second, so during a flood no message waits for
# longer than two seconds
_MOST_WAITING = 500
_SITE_SUBJECTS = [
    *("logs.>", "$KV.>", "logship.>", "_INBOX.>", "JS.>"),
    *(f"$JS.{own}.>" for own in ("API", "*.API", "ACK", "EVENT", "SNAPSHOT")),
]
"""Subjects that never cross to the site that we connect to, in either direction.

nats-server has no list of allowed subjects. If these crossed, lines would be stored twice, once
from the publisher and once from the copy, and the other site could delete our streams.
"""
_PING_EVERY = 20  # seconds
_COPYING = 32 * 1024**2
"""Bytes of a copy that nats-server (2.15.1) sends ahead; pings of sites wait behind them."""
_DEFAULTS: Section = {
    # long enough for a message over the slowest line; under TLS nats-server does not retry a write
    "write_deadline": f"{MAX_PAYLOAD // SLOWEST_LINK}s",
    "write_timeout": "retry",
    "ping_interval": f"{_PING_EVERY}s",
    "ping_max": 2,
    "reconnect_error_reports": 60,  # attempts to reach other servers, one a second
    "lame_duck_duration": "30s",
}


def build_sections(
    settings: BrokerSettings, folder: Path, size: int, tls: TlsConf | None, *, secured: bool
) -> Section:
    """Return all sections that an operator cannot set, except accounts.

    `size` is that of the disk of `folder` in bytes; `secured` says that clients need credentials.
    Raises `ConfigurationError` for a file that cannot be used.
    """
    return {
        "server_name": settings.name,
        "listen": _format_bind_address(settings.listen),
        "http": _format_bind_address(settings.http),
        "logtime": False,
        "max_payload": MAX_PAYLOAD,
        "feature_flags": {"js_ack_fc_v2": False},  # nats-py cannot read these acknowledgements yet
        "jetstream": _build_jetstream(settings, folder, size),
        "tls": tls.as_section(verify=False) if tls else None,
        "cluster": _build_cluster(settings, tls) if settings.cluster else None,
        "leafnodes": _build_leafnodes(settings, tls, secured=secured),
    }


def render_file(settings: BrokerSettings, decided: Section) -> str:
    """Return the text of the configuration file.

    Raises `ConfigurationError` if the operator's table [nats] sets something that is `decided`.
    """
    if taken := sorted({*map(str.lower, settings.nats)} & {*decided, "host", "net", "port"}):
        raise ConfigurationError(
            f"[nats] {', '.join(taken)}: logbroker sets this itself; see `logbroker run --help` "
            "for its options"
        )
    # clients of a lame duck connect to another server of the cluster, if there is one
    grace = {"lame_duck_grace_period": "1s" if settings.cluster else "100ms"}
    pings = {"ping_max": _COPYING // SLOWEST_LINK // _PING_EVERY} if decided["leafnodes"] else {}
    text = render({**_DEFAULTS, **grace, **pings, **settings.nats, **decided})
    # nats-server expands a variable only outside of quotes
    text = text.replace(f'"key": "${KEY_VARIABLE}"', f'"key": ${KEY_VARIABLE}')
    return f"# written by logbroker at every start: change its settings, not this file\n{text}\n"


def render(value: object) -> str:
    """Return a value as nats-server reads it: JSON, without entries that are None."""
    return json.dumps(_drop_none(value), indent=1, ensure_ascii=False, default=str)


def _drop_none(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _drop_none(one) for name, one in value.items() if one is not None}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_drop_none(one) for one in value]
    return value


def _build_jetstream(settings: BrokerSettings, folder: Path, size: int) -> Section:
    is_encrypted = settings.encryption_key_file is not None
    return {
        "store_dir": str(folder),
        # as large as the largest disk so far: the streams' own limit accounts for space. A server
        # whose limit is below those of its streams refuses to change them, also to a smaller limit
        "max_file_store": size,
        "max_memory_store": 64 * 1024**2,  # for consumers that are kept in memory
        "domain": settings.site or None,
        "sync_interval": "always",  # acknowledged means on disk
        "max_buffered_msgs": _MOST_WAITING,
        "cipher": "chachapoly" if is_encrypted else None,
        "key": f"${KEY_VARIABLE}" if is_encrypted else None,
        "limits": {
            "max_request_batch": 10_000,
            "default_max_consumers": -1,  # one per partition, and one per shipper that starts
        },
    }


def _build_cluster(settings: BrokerSettings, tls: TlsConf | None) -> Section:
    """Return the section of a cluster.

    Servers ping each other each second: messages to a server that vanished are lost until the
    others notice, and clients learn of the remaining servers (`connect_urls`) only then.
    """
    path = settings.cluster_secret_file
    secret = read_cluster_secret(path) if path is not None else ""
    shown = {"user": _CLUSTER_USER, "password": secret, "timeout": 3}
    credentials = f"{_CLUSTER_USER}:{quote(secret, safe='')}@" if secret else ""
    return {
        "name": settings.cluster,
        "listen": _format_bind_address(settings.cluster_listen),
        "authorization": shown if secret else None,
        "routes": [f"nats-route://{credentials}{route}" for route in settings.route],
        "compression": {"mode": "s2_auto"},  # between distant servers only
        "ping_interval": "1s",
        "ping_max": 3,
        "write_deadline": "10s",
        # without authorities nats-server would accept any certificate
        "tls": tls.as_section(verify=True) if tls and tls.authorities else None,
    }


def _build_leafnodes(
    settings: BrokerSettings, tls: TlsConf | None, *, secured: bool
) -> Section | None:
    """Return the section of leaf nodes, which carry copies of streams to other sites.

    Copies are not compressed: messages are compressed already, and nats-server sends compressed
    data in blocks of 1 MiB, which take too long on a slow line.
    """
    seed = None if settings.site_nkey is None else read_site_seed(settings.site_nkey)
    if settings.site_listen is None and not settings.site_remote:
        return None
    section = tls.as_section(verify=bool(tls.authorities)) if tls else None
    listening = {
        "listen": _format_bind_address(settings.site_listen),
        "authorization": None if secured else {"account": LOGS},  # on loopback alone
        "compression": "off",
        "tls": section,
    }
    remotes = [
        {
            "url": f"{'tls' if tls else 'nats-leaf'}://{remote}",
            "account": LOGS,
            "nkey": seed,
            "deny_imports": _SITE_SUBJECTS,
            "deny_exports": _SITE_SUBJECTS,
            "tls": section,
            "compression": "off",
        }
        for remote in settings.site_remote
    ]
    return {**(listening if settings.site_listen else {}), "remotes": remotes or None}


def _format_bind_address(address: Address | None) -> str | None:
    # nats-server takes port 0 as its default port, and -1 as any free one
    return None if address is None else str(Address(address.host, address.port or -1))
