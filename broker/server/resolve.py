"""The resolved configuration: what nats-server is to be, from settings, credentials, certificates and disk at one moment.

Reads; changes nothing.
"""

import logging
import platform
import secrets
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from broker.app.exits import ConfigurationError
from broker.app.units import format_size
from broker.auth.accounts import MONITOR, RECEIVE, SHIP, Admission, admit
from broker.auth.store_file import CREDENTIALS, load_credentials
from broker.client.access import Access
from broker.client.nkey import InvalidSeed, new_seed, seed_of, user_key
from broker.server.conf import ClusterConf, ServerConf, SitesConf, decided_here
from broker.server.store import Space, count_streams
from broker.server.tls import Security, security_of
from broker.settings import SITE_SCHEME, BrokerSettings, SecuritySettings, parse_route
from broker.topology import Topology

__all__ = ["Resolved", "ServerAccess", "own_name", "resolve", "space_kept_free"]

_LEAST_SECRET = 16  # characters
_LARGEST_RESERVE = 20 * 1024**3
_BUCKETS_SHARE = 32 * 1024**2  # of the store, and 16 KiB for each partition's history
_PARTITION_SHARE = 16 * 1024
_LARGEST_POSITIONS_SHARE = (
    1024**3
)  # a host takes some KB, some MB where it follows thousands of files
logger = logging.getLogger(__name__)


class ServerAccess:
    """Holds the key of this process, which nobody else knows, and reads the credential store when asked to."""

    def __init__(self, folder: Path) -> None:
        """Make the keys of this process; reads nothing yet."""
        seed = new_seed()
        self.own = Access(nkey_seed=seed)
        """How logbroker itself gets in."""
        self._own, self._anybody = user_key(seed).public, user_key(new_seed()).public
        self.folder = folder
        """The broker's directory, absolute."""
        self.monitoring = f"/{secrets.token_urlsafe(24)}"
        """The path of a secured server's monitoring, which asks for no credential and tells everybody's inboxes."""
        self._was_secured = False

    def look(self, settings: SecuritySettings, now: datetime, streams: int) -> Admission:
        """Return who gets in at `now`, where partitions are spread over so many streams.

        Raises `ConfigurationError` for a credential store that will not do. So does one that is gone while this broker runs: whoever opens a broker says so (`revoke --open-again`).
        """
        store = load_credentials(self.folder)
        if self._was_secured and store.revision == 0:
            raise ConfigurationError(
                f"{self.folder / CREDENTIALS} is gone; put back a copy of it, or add the credentials again"
            )
        self._was_secured = store.secured
        limits = {
            SHIP: settings.host_limits,
            RECEIVE: settings.receiver_limits,
            MONITOR: settings.monitor_limits,
        }
        return admit(store, self._own, self._anybody, now, limits, streams=streams)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings that count, and what follows from them; `own` is how logbroker itself connects."""

    settings: BrokerSettings
    conf: ServerConf
    topology: Topology
    admission: Admission
    security: Security
    own: Access

    def takes_restart_after(self, before: "Resolved") -> bool:
        """Whether a nats-server that is `before` must be restarted to be this: some things count at its start only."""
        is_opened = bool(self.admission.accounts.anybody and not before.admission.accounts.anybody)
        return (
            is_opened
            or self.own != before.own
            or (self.conf.http is not None and self.conf.http_path != before.conf.http_path)
        )


def resolve(
    settings: BrokerSettings, access: ServerAccess, space: Space, now: datetime
) -> Resolved:
    """Return what the server is to be; raises `ConfigurationError` for what does not go together."""
    streams = settings.streams or count_streams(access.folder) or 1
    admission = access.look(settings, now, streams)
    _refuse_open_network(settings, admission)
    security = security_of(settings, access.folder)
    conf = ServerConf(
        name=own_name(settings),
        listen=settings.listen,
        http=settings.http,
        folder=str(access.folder),
        # the stream's own limit keeps to the space there is: a server whose limit is below what its streams were promised
        # earlier refuses every change of them, to a smaller promise included
        max_store=max(space.total, int(settings.max_store or 0)),
        cluster=_cluster(settings),
        accounts=admission.accounts,
        tls=security.tls,
        own=settings.nats,
        sites=_sites(settings, is_open=bool(admission.accounts.anybody)),
        http_path=access.monitoring if admission.secured else "",
    )
    if decided := decided_here(conf):
        raise ConfigurationError(
            f"[nats] {', '.join(decided)}: logbroker sets this itself; see `logbroker run --help` for its options"
        )
    own = replace(security.own, nkey_seed=access.own.nkey_seed)
    topology = replace(settings.topology(), room=_limit_of(settings, space), stream_count=streams)
    return Resolved(settings, conf, topology, admission, security, own)


def own_name(settings: BrokerSettings) -> str:
    """Return the name of the server."""
    return settings.server_name or platform.node().replace(".", "-") or "logbroker"


def space_kept_free(settings: BrokerSettings, total: int) -> int:
    """Return how many bytes of a disk of `total` bytes are to stay free."""
    if settings.reserve is not None:
        return int(settings.reserve)
    return min(total // 20, _LARGEST_RESERVE)


def _refuse_open_network(settings: BrokerSettings, admission: Admission) -> None:
    """Let nobody in from other machines by accident: that takes credentials, or an option."""
    if settings.allow_anonymous:
        return
    if not admission.secured and not settings.listen.is_loopback:
        raise ConfigurationError(
            f"--listen {settings.listen} reaches beyond this machine, and there are no credentials; add some with "
            f"`logbroker credentials add admin NAME --store-dir {settings.store_dir}`, "
            "or give --allow-anonymous in a closed network"
        )
    if settings.http is not None and not settings.http.is_loopback:
        raise ConfigurationError(
            f"--http {settings.http} shows names of hosts to everybody, as it knows no credentials; keep it on "
            "127.0.0.1, or give --allow-anonymous in a closed network"
        )


def _limit_of(settings: BrokerSettings, space: Space) -> int:
    """Return the limit of the streams, as far as the store has space for it.

    Always less than the store: in a store that is full, receivers could no longer commit their offsets, nor shippers keep
    their positions. The store may use never less than it does; a full disk freezes a stream until a restart.
    """
    unused = max(0, space.free - space_kept_free(settings, space.total))
    store = int(settings.max_store or max(space.held + unused, 1))
    positions = min(store // 16, _LARGEST_POSITIONS_SHARE)
    share = _BUCKETS_SHARE + settings.partitions * _PARTITION_SHARE + positions
    limit, asked = max(store - min(share, store // 4), 1), settings.max_bytes
    if asked is None:
        return limit
    if limit < asked:
        logger.warning(
            "the streams get %s instead of --max-bytes %s: the store has no space for more",
            *(format_size(limit), format_size(asked)),
        )
    return min(int(asked), limit)


def _cluster(settings: BrokerSettings) -> ClusterConf | None:
    """Return what nats-server needs to know of its cluster, None for a broker that is alone.

    Raises `ConfigurationError` for what would leave the cluster open to everybody, or the broker alone in it.
    """
    if bool(settings.cluster) != bool(settings.route):
        raise ConfigurationError(
            "--cluster and --route go together: the cluster's name, and its other servers, e.g. nats-route://broker2:6222"
        )
    if not settings.cluster:
        return None
    path = settings.cluster_secret_file
    secret = _cluster_secret(path) if path else ""
    if not secret and not settings.cluster_listen.is_loopback:
        raise ConfigurationError(
            f"--cluster-listen {settings.cluster_listen} is open to the network, and whoever connects there reads and writes "
            "all lines: give all servers the same --cluster-secret-file, e.g. made by `openssl rand -hex 32`"
        )
    routes = tuple(map(parse_route, settings.route))
    return ClusterConf(settings.cluster, settings.cluster_listen, routes, secret)


def _cluster_secret(path: Path) -> str:
    secret = _text_in(path, "--cluster-secret-file").strip()
    if len(secret) < _LEAST_SECRET or not secret.isprintable() or path.stat().st_mode & 0o007:
        raise ConfigurationError(
            f"--cluster-secret-file {path}: should hold {_LEAST_SECRET} or more characters on one line, as from "
            "`openssl rand -hex 32`, and be readable by its owner alone (`chmod 600`)"
        )
    return secret


def _sites(settings: BrokerSettings, *, is_open: bool) -> SitesConf | None:
    """Return what nats-server needs to know of other sites, None where there are none; `is_open` without credentials."""
    if reason := settings.contradiction():
        raise ConfigurationError(reason)
    if not settings.site:
        return None
    if settings.site_listen and is_open and not settings.site_listen.is_loopback:
        raise ConfigurationError(
            f"--site-listen {settings.site_listen} would let any site in: add a credential for each first, "
            "with `logbroker credentials add site NAME`"
        )
    remotes = (parse_route(remote.removeprefix(SITE_SCHEME)) for remote in settings.site_remote)
    seed = ""
    if settings.site_nkey:
        try:
            seed = seed_of(_text_in(settings.site_nkey, "--site-nkey"))
        except InvalidSeed as error:
            raise ConfigurationError(f"--site-nkey {settings.site_nkey}: {error}") from None
    return SitesConf(settings.site, settings.site_listen, tuple(remotes), seed, is_open)


def _text_in(path: Path, option: str) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise ConfigurationError(f"{option} {path}: {reason}") from None
