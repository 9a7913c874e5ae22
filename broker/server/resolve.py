"""Makes the configuration of a broker from its settings, credentials, certificates and disk.

Reads files and writes none. The broker calls `resolve` at each start and at each reload.
"""

import logging
import secrets
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from broker.auth.accounts import LOGS, MONITOR, RECEIVE, SHIP, BuiltinKeys, Section, build_accounts
from broker.auth.credentials import CredentialStore
from broker.auth.files import load_credentials
from broker.server.nats_conf import TlsConf, build_sections, render_file, resolve_tls
from broker.server.store import Space, check_encryption, list_stored_streams
from broker.settings import BrokerSettings
from broker.topology import Topology
from nats_logship.app.exits import ConfigurationError
from nats_logship.app.units import format_size
from nats_logship.client.access import Access
from nats_logship.client.nkey import new_seed, user_key
from nats_logship.wire.streams import MAX_STREAMS, STREAM, stream_names

_LARGEST_RESERVE = 20 * 1024**3  # bytes
# bytes of the store that are kept for buckets, at most. The positions of a host take some KB, or
# some MB with thousands of files
_LARGEST_BUCKETS = 1024**3
logger = logging.getLogger(__name__)


class ServerKeys:
    """The keys that this process makes for itself."""

    def __init__(self) -> None:
        """Make the keys."""
        self.seed = new_seed()
        """The seed with which logbroker itself connects."""
        self.key = user_key(self.seed).public
        """Its public key."""
        self.anonymous = user_key(new_seed()).public
        """The public key of clients without a key; nobody has its seed."""
        self.monitoring = f"/{secrets.token_urlsafe(24)}"
        """The path of a secured server's monitoring, which has no credentials and shows inboxes."""


@dataclass(frozen=True, slots=True)
class ServerConf:
    """The resolved configuration of a broker; `text` is nats-server's configuration file.

    `access` is how logbroker itself connects. `http_path` is the path of nats-server's monitoring,
    a secret if the broker has credentials.
    """

    settings: BrokerSettings
    text: str = field(repr=False)
    topology: Topology
    credentials: CredentialStore
    tls: TlsConf | None
    http_path: str = field(repr=False)
    access: Access

    @property
    def names(self) -> dict[str, str]:
        """The holders of the credentials by their public keys."""
        return {one.nkey: str(one.holder) for one in self.credentials.credentials}


def resolve(settings: BrokerSettings, folder: Path, keys: ServerKeys, space: Space) -> ServerConf:
    """Return the configuration of the server of a folder.

    Raises `ConfigurationError` for settings that contradict each other or the store.
    """
    stored = list_stored_streams(folder)
    streams = settings.streams or count_streams(stored) or 1
    credentials = load_credentials(folder)
    secured = credentials.is_secured
    if contradiction := next(_find_contradictions(settings, folder, secured=secured), ""):
        raise ConfigurationError(contradiction)
    check_encryption(folder, has_key=settings.encryption_key_file is not None)
    tls = resolve_tls(settings, folder)
    path = keys.monitoring if secured and settings.http else ""
    decided = {
        **build_sections(settings, folder, space.largest, tls, secured=secured),
        "http_base_path": path or None,
        **_build_accounts(settings, keys, credentials, streams),
    }
    names = stream_names(streams)
    topology = replace(
        settings.topology(),
        max_bytes=_limit_streams(settings, space, has_streams=stored.issuperset(names)),
        may_grow=not settings.cluster,
        stream_count=streams,
    )
    return ServerConf(
        settings=settings,
        text=render_file(settings, decided),
        topology=topology,
        credentials=credentials,
        tls=tls,
        http_path=path,
        access=replace(tls.access if tls else Access(), nkey_seed=keys.seed),
    )


def _build_accounts(
    settings: BrokerSettings, keys: ServerKeys, credentials: CredentialStore, streams: int
) -> Section:
    hosts, receivers = settings.host_connections, settings.receiver_connections
    asked = {"max_streams": settings.max_streams, "max_consumers": settings.max_consumers}
    return build_accounts(
        credentials.credentials,
        BuiltinKeys(keys.key, "" if credentials.is_secured else keys.anonymous),
        limits={
            LOGS: {name: most for name, most in asked.items() if most is not None},
            SHIP: {"max_connections": hosts, "max_subscriptions": 100},
            RECEIVE: {"max_connections": receivers, "max_subscriptions": 10_000},
            MONITOR: {"max_connections": 1000, "max_subscriptions": 1000},
        },
        stream_count=streams,
        site=settings.site,
    )


def compute_reserve(settings: BrokerSettings, total: int) -> int:
    """Return the bytes that should stay free on a disk of `total` bytes."""
    if settings.reserve is not None:
        return int(settings.reserve)
    return min(total // 20, _LARGEST_RESERVE)


def _limit_streams(settings: BrokerSettings, space: Space, *, has_streams: bool) -> int | None:
    """Return the limit in bytes of all streams together: --max-bytes, or less if that does not fit.

    If others have filled the disk it is None, and streams that exist keep their limits: with a
    limit of what they hold, hosts would wait until the next start.

    A part of the store is kept for the buckets, so that receivers can commit offsets and shippers
    can store positions while the streams are full. `capacity` includes what is stored already.
    The limit is rounded down by up to 3 %, so that a restart on a disk that others use keeps it.
    """
    reserve = compute_reserve(settings, space.total)
    if has_streams and space.free < reserve:
        logger.warning(
            "the disk has %s free, less than --reserve (%s): the streams keep their limits; free "
            "space there",
            format_size(space.free),
            format_size(reserve),
        )
        return None
    unused = max(0, space.free - reserve)
    capacity = max(space.held + unused, 1)
    limit, asked = max(capacity - min(capacity // 8, _LARGEST_BUCKETS), 1), settings.max_bytes
    limit -= limit % (1 << max(0, limit.bit_length() - 6))
    if asked is not None and limit < asked:
        logger.warning(
            "the streams get %s instead of --max-bytes %s: the store has no space for more",
            format_size(limit),
            format_size(asked),
        )
    return limit if asked is None else min(int(asked), limit)


def _find_contradictions(settings: BrokerSettings, folder: Path, *, secured: bool) -> Iterator[str]:
    """Yield settings that exclude each other, or open the broker to the network by accident."""
    yield from _find_site_contradictions(settings)
    may_be_reached = {
        "listen": secured or settings.allow_anonymous,
        "http": settings.allow_anonymous,  # nats-server's monitoring has no credentials
        "site_listen": secured,
    }
    for name, is_fit in may_be_reached.items():
        if (address := getattr(settings, name)) and not (is_fit or address.is_loopback):
            yield (
                f"--{name.replace('_', '-')} {address} is open to the network, and anybody there "
                "could connect: keep it on 127.0.0.1, or for --listen and --site-listen add a "
                f"credential: `logbroker credentials add admin NAME --store-dir {folder}` (or "
                "`site NAME`); --allow-anonymous is for --listen and --http in a closed network"
            )
    if bool(settings.cluster) != bool(settings.route):
        yield (
            "--cluster and --route go together: the cluster's name, and its other servers, e.g. "
            "nats-route://broker2:6222"
        )
    if (settings.replicas or 1) > 1 and not settings.cluster:
        yield f"--replicas {settings.replicas} needs --cluster: one server holds each line once"
    is_local = settings.cluster_listen.is_loopback
    if settings.cluster and not (settings.cluster_secret_file or is_local):
        yield (
            f"--cluster-listen {settings.cluster_listen} is open to the network, and anybody there "
            "could read and write all lines: give all servers the same --cluster-secret-file, e.g. "
            "made by `openssl rand -hex 32`"
        )


def _find_site_contradictions(settings: BrokerSettings) -> Iterator[str]:
    for name in ("mirror", "site_listen", "site_nkey", "site_remote", "source"):
        if getattr(settings, name) and not settings.site:
            yield f"--{name.replace('_', '-')} needs --site, the name of this site"
    if settings.mirror and settings.source:
        yield "--mirror and --source exclude each other: a mirror takes no other lines"
    if settings.site and settings.site in (settings.mirror, *settings.source):
        yield f"--mirror and --source name other sites, but this one is {settings.site}"


def count_streams(names: Container[str]) -> int:
    """Return the number of streams of lines among these names."""
    if STREAM in names:
        return 1
    return sum(name in names for name in stream_names(MAX_STREAMS))
