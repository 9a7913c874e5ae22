"""The resolved configuration: what nats-server is to be, from settings, credentials, certificates and disk at one moment.

Reads; changes nothing.
"""

import logging
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from broker.app.exits import ConfigurationError
from broker.app.units import format_size
from broker.auth.accounts import LOGS, MONITOR, RECEIVE, SHIP, Section, accounts_of
from broker.auth.certificates import Pki, names_in
from broker.auth.files import load_credentials
from broker.auth.store import CredentialStore
from broker.client.access import Access
from broker.client.nkey import InvalidSeed, new_seed, seed_of, user_key
from broker.server.conf import ServerConf, TlsConf, decided_here
from broker.server.store import Space, check_encryption, streams_in
from broker.settings import BrokerSettings, SecuritySettings, SitesSettings
from broker.wire.streams import streams_among

_LEAST_SECRET = 16  # bytes
_LARGEST_RESERVE = 20 * 1024**3
_LARGEST_BUCKETS = (
    1024**3
)  # of the store: the positions of a host take some KB, or MB with thousands of files
logger = logging.getLogger(__name__)


class ServerKeys:
    """The keys of this process, which nobody else knows: logbroker's own, and that of whoever comes without one."""

    def __init__(self) -> None:
        """Make the keys."""
        seed = new_seed()
        self.own = Access(nkey_seed=seed)
        """How logbroker itself gets in."""
        self.key, self.anybody = user_key(seed).public, user_key(new_seed()).public
        self.monitoring = f"/{secrets.token_urlsafe(24)}"
        """The path of a secured server's monitoring, which asks for no credential and tells everybody's inboxes."""


def resolve(settings: BrokerSettings, folder: Path, keys: ServerKeys, space: Space) -> ServerConf:
    """Return what the server of a folder is to be; raises `ConfigurationError` for what does not go together."""
    streams = settings.streams or streams_among(streams_in(folder)) or 1
    store = load_credentials(folder)
    if contradiction := next(_contradictions(settings, secured=store.secured), ""):
        raise ConfigurationError(contradiction)
    check_encryption(folder, has_key=settings.encryption_key_file is not None)
    tls = tls_of(settings, folder)
    conf = ServerConf(
        settings=settings,
        folder=folder,
        # the stream's own limit keeps to the space there is: a server whose limit is below what its streams were promised
        # earlier refuses every change of them, to a smaller promise included
        max_store=space.total,
        accounts=_accounts(settings, keys, store, streams),
        tls=tls,
        http_path=keys.monitoring if store.secured else "",
        cluster_secret=_cluster_secret(settings),
        site_seed=_site_seed(settings),
        topology=replace(
            settings.topology(),
            max_bytes=_limit_of(settings, space),
            may_grow=not settings.cluster,
            stream_count=streams,
        ),
        credentials=store,
        own=replace(tls.access if tls else Access(), nkey_seed=keys.own.nkey_seed),
    )
    if decided := decided_here(conf):
        raise ConfigurationError(
            f"[nats] {', '.join(decided)}: logbroker sets this itself; see `logbroker run --help` for its options"
        )
    return conf


def _accounts(
    settings: BrokerSettings, keys: ServerKeys, store: CredentialStore, streams: int
) -> Section:
    hosts, receivers = settings.host_connections, settings.receiver_connections
    asked = {"max_streams": settings.max_streams, "max_consumers": settings.max_consumers}
    limits = {
        LOGS: {name: most for name, most in asked.items() if most is not None},
        SHIP: {"max_connections": hosts, "max_subscriptions": 100},
        RECEIVE: {"max_connections": receivers, "max_subscriptions": 10_000},
        MONITOR: {"max_connections": 1000, "max_subscriptions": 1000},
    }
    anybody = "" if store.secured else keys.anybody
    return accounts_of(store.credentials, keys.key, limits, anybody, streams=streams)


def space_kept_free(settings: BrokerSettings, total: int) -> int:
    """Return how many bytes of a disk of `total` bytes are to stay free."""
    if settings.reserve is not None:
        return int(settings.reserve)
    return min(total // 20, _LARGEST_RESERVE)


def _contradictions(settings: BrokerSettings, *, secured: bool) -> Iterator[str]:
    """Yield what does not go together, or would let somebody in from other machines by accident."""
    yield from _contradictions_of_sites(settings)
    is_fit = {
        "listen": secured or settings.allow_anonymous,
        "http": settings.allow_anonymous,  # which knows no credentials
        "site_listen": secured,
    }
    for field, reached_by_others in is_fit.items():
        if (address := getattr(settings, field)) and not (reached_by_others or address.is_loopback):
            yield (
                f"--{field.replace('_', '-')} {address} is open to the network, and whoever connects there gets in: keep it on "
                "127.0.0.1, or add credentials with `logbroker credentials add admin NAME` (`add site NAME`) for --listen and "
                "--site-listen; --allow-anonymous is for --listen and --http in a closed network"
            )
    if bool(settings.cluster) != bool(settings.route):
        yield "--cluster and --route go together: the cluster's name, and its other servers, e.g. nats-route://broker2:6222"
    is_local = settings.cluster_listen.is_loopback
    if settings.cluster and not (settings.cluster_secret_file or is_local):
        yield (
            f"--cluster-listen {settings.cluster_listen} is open to the network, and whoever connects there reads and writes "
            "all lines: give all servers the same --cluster-secret-file, e.g. made by `openssl rand -hex 32`"
        )


def _contradictions_of_sites(settings: SitesSettings) -> Iterator[str]:
    for field in ("mirror", "site_listen", "site_nkey", "site_remote", "source"):
        if getattr(settings, field) and not settings.site:
            yield f"--{field.replace('_', '-')} takes a --site, the name of this one"
    if settings.mirror and settings.source:
        yield "--mirror and --source exclude each other: a copy takes in nothing else"
    if settings.site and settings.site in (settings.mirror, *settings.source):
        yield f"--mirror and --source name other sites, and this one is {settings.site}"


def _limit_of(settings: BrokerSettings, space: Space) -> int:
    """Return the limit of the streams, as far as the store has space for it.

    Always less than the store: in a store that is full, receivers could no longer commit their offsets, nor shippers keep
    their positions. The store may use never less than it does; a full disk freezes a stream until a restart.
    """
    unused = max(0, space.free - space_kept_free(settings, space.total))
    store = max(space.held + unused, 1)
    limit, asked = max(store - min(store // 8, _LARGEST_BUCKETS), 1), settings.max_bytes
    if asked is not None and limit < asked:
        logger.warning(
            "the streams get %s instead of --max-bytes %s: the store has no space for more",
            *(format_size(limit), format_size(asked)),
        )
    return limit if asked is None else min(int(asked), limit)


def _cluster_secret(settings: BrokerSettings) -> str:
    path = settings.cluster_secret_file
    if path is None or not settings.cluster:
        return ""
    secret = secret_in(path, "--cluster-secret-file")
    if path.stat().st_mode & 0o007:
        raise ConfigurationError(
            f"--cluster-secret-file {path}: should be readable by its owner alone (`chmod 600`)"
        )
    return secret


def _site_seed(settings: BrokerSettings) -> str:
    if settings.site_nkey is None:
        return ""
    try:
        return seed_of(_text_in(settings.site_nkey, "--site-nkey"))
    except InvalidSeed as error:
        raise ConfigurationError(f"--site-nkey {settings.site_nkey}: {error}") from None


def secret_in(path: Path, option: str) -> str:
    """Return the line that is in the file of an option; raises `ConfigurationError` for one that is short, or no text."""
    text = _text_in(path, option).removesuffix("\n")
    if len(text.encode()) < _LEAST_SECRET or not text.isprintable():
        raise ConfigurationError(
            f"{option} {path}: should hold a line of at least {_LEAST_SECRET} bytes, as from `openssl rand -hex 32`"
        )
    return text


def _text_in(path: Path, option: str) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise ConfigurationError(f"{option} {path}: {reason}") from None


def tls_of(settings: SecuritySettings, folder: Path) -> TlsConf | None:
    """Return what the settings and the store say, None for the clear; that a key is of another certificate nats-server says."""
    pki = Pki(folder)
    certificate = settings.server_cert or (pki.broker if pki.broker.exists() else None)
    if certificate is None:
        if settings.server_key or settings.client_ca:
            raise ConfigurationError(
                "--server-key and --client-ca take a broker with a certificate; make one with `logbroker tls init`, or give "
                "--server-cert"
            )
        return None
    certificate = certificate.absolute()
    key = (settings.server_key or certificate).absolute()
    authorities = settings.client_ca or (pki.authority if pki.authority.exists() else None)
    try:
        name = next(iter(names_in(certificate.read_bytes())), "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"cannot use certificate {certificate}: {reason}") from None
    known = authorities and authorities.absolute()
    return TlsConf(certificate, key, known, Access(tls_ca=certificate, tls_name=name))
