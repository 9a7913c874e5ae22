"""The resolved configuration: what nats-server is to be, from settings, credentials, certificates and disk at one moment.

Reads; changes nothing. nats-server (2.15.1) refuses a name that it does not know, at its start and at a reload. It reads JSON,
all but the escapes of control characters.
"""

import json
import logging
import secrets
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from broker.auth.certificates import Pki, parse_names
from broker.auth.credentials import CredentialStore
from broker.auth.files import load_credentials
from broker.auth.permissions import LOGS, MONITOR, RECEIVE, SHIP, Section, build_accounts
from broker.server.store import Space, check_encryption, list_stored_streams
from broker.settings import BrokerSettings
from broker.topology import Topology
from nats_logship.app.address import Address
from nats_logship.app.exits import ConfigurationError
from nats_logship.app.secret_files import check_kind
from nats_logship.app.units import format_size
from nats_logship.client.access import Access
from nats_logship.client.nkey import InvalidSeed, new_seed, seed_of, user_key
from nats_logship.wire.streams import MAX_PAYLOAD, MAX_STREAMS, SLOWEST_LINK, STREAM, stream_names

KEY_VARIABLE = "LOGSHIP_STORE_KEY"
"""By which nats-server gets the key of its store: neither a file of ours nor a command line holds the key."""

_LEAST_SECRET = 16  # bytes
_LARGEST_RESERVE = 20 * 1024**3
# of the store: the positions of a host take some KB, or MB with thousands of files
_LARGEST_BUCKETS = 1024**3
_CLUSTER_USER = "logbroker"
# messages that wait for a stream; further ones are refused, and their senders ask again. A stream
# stores some 200 to 3,000 a second, one after the other, so nobody waits for longer than two
# seconds behind a flood
_MOST_WAITING = 500
_SITE_SUBJECTS = [
    *("logs.>", "$KV.>", "logship.>", "_INBOX.>", "JS.>"),
    *(f"$JS.{own}.>" for own in ("API", "*.API", "ACK", "EVENT", "SNAPSHOT")),
]
"""Subjects that never cross to the site that we connect to, in either direction.

nats-server knows no list of what may. Lines would be stored twice otherwise, by their publisher
and by the copy; with the API of JetStream the other site could delete our streams.
"""
_PING_EVERY = 20  # seconds
_COPYING = 32 * 1024**2
"""Bytes of a copy that nats-server (2.15.1) has under way at a time; pings of sites wait behind."""
_DEFAULTS: Section = {
    # until a message has left, also over the slowest line; under TLS there is no second try
    "write_deadline": f"{MAX_PAYLOAD // SLOWEST_LINK}s",
    "write_timeout": "retry",
    "ping_interval": f"{_PING_EVERY}s",
    "ping_max": 2,
    "reconnect_error_reports": 60,  # attempts to reach other servers, one a second
    "lame_duck_duration": "30s",
}
logger = logging.getLogger(__name__)


class ServerKeys:
    """The keys of this process, which nobody else knows: logbroker's own, and that of whoever comes without one."""

    def __init__(self) -> None:
        """Make the keys."""
        self.seed = new_seed()
        """By which logbroker itself gets in."""
        self.key, self.anybody = user_key(self.seed).public, user_key(new_seed()).public
        self.monitoring = f"/{secrets.token_urlsafe(24)}"
        """The path of a secured server's monitoring, which asks for no credential and tells everybody's inboxes."""


@dataclass(frozen=True, slots=True)
class TlsConf:
    """Absolute paths of PEM files, `authorities` being those that others' certificates are checked against; logbroker's own `access`."""

    certificate: Path
    key: Path
    authorities: Path | None
    access: Access

    @property
    def files(self) -> tuple[Path, ...]:
        """Files whose change is a reason to read them again."""
        named = (self.certificate, self.key, self.authorities)
        return tuple(dict.fromkeys(filter(None, named)))

    def section(self, *, verify: bool) -> Section:
        """Return what a listener is told of TLS; with `verify` it takes nobody without a certificate."""
        return {
            "cert_file": self.certificate,
            "key_file": self.key,
            "ca_file": self.authorities,
            "min_version": "1.3",
            "timeout": 5,
            "verify": verify or None,
        }


@dataclass(frozen=True, slots=True)
class ServerConf:
    """The resolved configuration of a broker: settings, and what goes with them; `text` is nats-server's configuration file.

    `own` is how logbroker itself connects. `http_path` is where the monitoring answers: a
    secret where not everybody on this machine may see it. The key of a store that is encrypted is in the environment (KEY_VARIABLE).
    """

    settings: BrokerSettings
    text: str = field(repr=False)
    topology: Topology
    credentials: CredentialStore
    tls: TlsConf | None
    http_path: str = field(repr=False)
    own: Access

    @property
    def names(self) -> dict[str, str]:
        """The holders of the credentials by their public keys."""
        return {one.nkey: str(one.holder) for one in self.credentials.credentials}


def resolve(settings: BrokerSettings, folder: Path, keys: ServerKeys, space: Space) -> ServerConf:
    """Return what the server of a folder is to be; raises `ConfigurationError` for what does not go together."""
    streams = settings.streams or count_streams(list_stored_streams(folder)) or 1
    store = load_credentials(folder)
    if contradiction := next(_contradictions(settings, secured=store.is_secured), ""):
        raise ConfigurationError(contradiction)
    check_encryption(folder, has_key=settings.encryption_key_file is not None)
    tls = resolve_tls(settings, folder)
    path = keys.monitoring if store.is_secured and settings.http else ""
    decided = {
        **_server(settings, folder, space.total),
        "http_base_path": path or None,
        "tls": tls.section(verify=False) if tls else None,
        "cluster": _cluster(settings, tls) if settings.cluster else None,
        "leafnodes": _sites(settings, tls, secured=store.is_secured),
        **_accounts(settings, keys, store, streams),
    }
    topology = replace(
        settings.topology(),
        max_bytes=_limit_of(settings, space),
        may_grow=not settings.cluster,
        stream_count=streams,
    )
    own = replace(tls.access if tls else Access(), nkey_seed=keys.seed)
    return ServerConf(settings, _rendered(settings, decided), topology, store, tls, path, own)


def _rendered(settings: BrokerSettings, decided: Section) -> str:
    """Return the text of the configuration file; raises `ConfigurationError` where an operator sets what is `decided` here."""
    if taken := sorted({*map(str.lower, settings.nats)} & {*decided, "host", "net", "port"}):
        raise ConfigurationError(
            f"[nats] {', '.join(taken)}: logbroker sets this itself; see `logbroker run --help` for its options"
        )
    # clients are told to go elsewhere; where there is nowhere to go, waiting helps nobody
    grace = {"lame_duck_grace_period": "1s" if settings.cluster else "100ms"}
    most = {"ping_max": _COPYING // SLOWEST_LINK // _PING_EVERY} if decided["leafnodes"] else {}
    text = render({**_DEFAULTS, **grace, **most, **settings.nats, **decided})
    # a variable is no string; as a piece of configuration it may be one (`quoted`)
    text = text.replace(f'"key": "${KEY_VARIABLE}"', f'"key": ${KEY_VARIABLE}')
    return f"# written by logbroker at every start: change its settings, not this file\n{text}\n"


def render(value: object) -> str:
    """Return a value as nats-server reads it, as JSON; of a mapping what is not None."""
    return json.dumps(_without_none(value), indent=1, ensure_ascii=False, default=str)


def _without_none(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _without_none(one) for name, one in value.items() if one is not None}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_without_none(one) for one in value]
    return value


def _server(settings: BrokerSettings, folder: Path, size: int) -> Section:
    """Return what an operator cannot set of the server itself; `size` is that of the disk of `folder` in bytes."""
    is_encrypted = settings.encryption_key_file is not None
    return {
        "server_name": settings.name,
        "listen": _bindable(settings.listen),
        "http": _bindable(settings.http),
        "logtime": False,
        "max_payload": MAX_PAYLOAD,
        "feature_flags": {"js_ack_fc_v2": False},  # nats-py cannot read these acknowledgements yet
        "jetstream": {
            "store_dir": str(folder),
            # the stream's own limit keeps to the space there is: a server whose limit is below what its streams were promised
            # earlier refuses every change of them, to a smaller promise included
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
        },
    }


def _bindable(address: Address | None) -> str | None:
    # nats-server takes 0 as its default port, and -1 as any free one
    return None if address is None else str(Address(address.host, address.port or -1))


def _cluster(settings: BrokerSettings, tls: TlsConf | None) -> Section:
    """Return the section; raises `ConfigurationError` for a secret that is none.

    Servers look for each other every second: what is sent on to one that has gone without a word is lost until they notice, and
    then they tell clients how many of them they still know (in `connect_urls`), who go elsewhere by it.
    """
    path, secret = settings.cluster_secret_file, ""
    if path is not None:
        secret = read_secret(path, "--cluster-secret-file")
        if path.stat().st_mode & 0o007:
            raise ConfigurationError(
                f"--cluster-secret-file {path}: should be readable by its owner alone (`chmod 600`)"
            )
    shown = {"user": _CLUSTER_USER, "password": secret, "timeout": 3}
    credentials = f"{_CLUSTER_USER}:{quote(secret, safe='')}@" if secret else ""
    return {
        "name": settings.cluster,
        "listen": _bindable(settings.cluster_listen),
        "authorization": shown if secret else None,
        "routes": [f"nats-route://{credentials}{route}" for route in settings.route],
        "compression": {"mode": "s2_auto"},  # only where they are far from each other
        "ping_interval": "1s",
        "ping_max": 3,
        "write_deadline": "10s",
        # without authorities anybody's certificate would do
        "tls": tls.section(verify=True) if tls and tls.authorities else None,
    }


def _sites(settings: BrokerSettings, tls: TlsConf | None, *, secured: bool) -> Section | None:
    """Return the section of leaf nodes, over which copies of streams go; None where there are none.

    What goes over them is not compressed: rounds are, and nothing comes out of nats-server's
    compression before a whole block of 1 MiB is there, which a slow line takes too long for.
    """
    seed = None
    if settings.site_nkey is not None:
        try:
            text = _text_in(settings.site_nkey, "--site-nkey")
            check_kind(settings.site_nkey, text, "--site-nkey", ("site",))
            seed = seed_of(text)
        except InvalidSeed as error:
            raise ConfigurationError(f"--site-nkey {settings.site_nkey}: {error}") from None
    if settings.site_listen is None and not settings.site_remote:
        return None
    line = tls.section(verify=bool(tls.authorities)) if tls else None
    listening = {
        "listen": _bindable(settings.site_listen),
        "authorization": None if secured else {"account": LOGS},  # and on loopback alone
        "compression": "off",
        "tls": line,
    }
    remotes = [
        {
            "url": f"{'tls' if tls else 'nats-leaf'}://{remote}",
            "account": LOGS,
            "nkey": seed,
            "deny_imports": _SITE_SUBJECTS,
            "deny_exports": _SITE_SUBJECTS,
            "tls": line,
            "compression": "off",
        }
        for remote in settings.site_remote
    ]
    return {**(listening if settings.site_listen else {}), "remotes": remotes or None}


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
    anybody = "" if store.is_secured else keys.anybody
    known = store.credentials
    return build_accounts(known, keys.key, limits, anybody, streams=streams, site=settings.site)


def compute_reserve(settings: BrokerSettings, total: int) -> int:
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
    for name, reached_by_others in is_fit.items():
        if (address := getattr(settings, name)) and not (reached_by_others or address.is_loopback):
            yield (
                f"--{name.replace('_', '-')} {address} is open to the network, and whoever connects there gets in: keep it on "
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


def _contradictions_of_sites(settings: BrokerSettings) -> Iterator[str]:
    for name in ("mirror", "site_listen", "site_nkey", "site_remote", "source"):
        if getattr(settings, name) and not settings.site:
            yield f"--{name.replace('_', '-')} takes a --site, the name of this one"
    if settings.mirror and settings.source:
        yield "--mirror and --source exclude each other: a copy takes in nothing else"
    if settings.site and settings.site in (settings.mirror, *settings.source):
        yield f"--mirror and --source name other sites, and this one is {settings.site}"


def _limit_of(settings: BrokerSettings, space: Space) -> int:
    """Return the limit of the streams, as far as the store has space for it.

    Always less than the store: in a store that is full, receivers could no longer commit their offsets, nor shippers keep
    their positions. The store may use never less than it does; a full disk freezes a stream until a restart.
    """
    unused = max(0, space.free - compute_reserve(settings, space.total))
    store = max(space.held + unused, 1)
    limit, asked = max(store - min(store // 8, _LARGEST_BUCKETS), 1), settings.max_bytes
    if asked is not None and limit < asked:
        logger.warning(
            "the streams get %s instead of --max-bytes %s: the store has no space for more",
            format_size(limit),
            format_size(asked),
        )
    return limit if asked is None else min(int(asked), limit)


def read_secret(path: Path, option: str) -> str:
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


def resolve_tls(settings: BrokerSettings, folder: Path) -> TlsConf | None:
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
        name = next(iter(parse_names(certificate.read_bytes())), "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"cannot use certificate {certificate}: {reason}") from None
    known = authorities and authorities.absolute()
    # of one that it signs anew it trusts the authority: its server may have read the one before
    is_ours = certificate == pki.broker.absolute() and pki.authority.exists()
    trusted = pki.authority.absolute() if is_ours else certificate
    return TlsConf(certificate, key, known, Access(tls_ca=trusted, tls_name=name))


def count_streams(names: Container[str]) -> int:
    """Return how many streams of partitions are among these names; 0 for none."""
    if STREAM in names:
        return 1
    return sum(name in names for name in stream_names(MAX_STREAMS))
