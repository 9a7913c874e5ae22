"""The configuration file of nats-server, rendered from values; never reads or writes a file.

Every name here was checked with `nats-server -t` of 2.15.1, which the server start repeats.
"""

from dataclasses import dataclass, field

from broker.app.address import Address
from broker.auth.accounts import Accounts
from broker.server.conf_accounts import render_accounts
from broker.server.conf_cluster import ClusterConf, render_cluster
from broker.server.conf_encryption import Cipher, render_encryption
from broker.server.conf_sites import SitesConf, render_sites
from broker.server.conf_tls import TlsConf, client_section
from broker.server.quoting import quoted
from broker.wire.streams import MAX_PAYLOAD

__all__ = ["ServerConf", "kept_free", "render", "store_limit", "stream_limit"]

_LARGEST_RESERVE = 20 * 1024**3
_BUCKETS_SHARE = (
    32 * 1024**2
)  # room for the buckets in the store, and 16 KiB for each partition's history
_PARTITION_SHARE = 16 * 1024
_LARGEST_POSITIONS_SHARE = (
    1024**3
)  # a host takes some KB, some MB where it follows thousands of files


@dataclass(frozen=True, slots=True)
class ServerConf:
    """What the configuration of a server is made of; `folder` is absolute, `max_store` and `max_memory` are bytes.

    `http_path` is where the monitoring answers at `http`: a secret where not everybody on this machine may see it.
    """

    name: str
    listen: Address
    http: Address | None
    folder: str
    max_store: int
    cluster: ClusterConf | None = None
    accounts: Accounts | None = None
    tls: TlsConf | None = None
    sites: SitesConf | None = None
    cipher: Cipher | None = None
    own: str = ""  # the line that includes an operator's own configuration, over which ours wins
    max_memory: int = 64 * 1024**2
    http_path: str = field(default="", repr=False)


def store_limit(free: int, held: int, total: int, reserve: int | None) -> int:
    """Return the most that the store may hold, in bytes, so that `reserve` of the disk stays free.

    `free` is what the disk has left, `held` what the store holds already, `total` the disk's size. Never less than
    `held`: a server that is over its limit would refuse to bring back what it has. A limit that is reached is a clean
    negative answer; a full disk freezes a stream until the server is restarted.
    """
    return max(held + max(0, free - kept_free(total, reserve)), 1)


def kept_free(total: int, reserve: int | None) -> int:
    """Return what of a disk of `total` bytes is to stay free: `reserve`, where that is told."""
    return min(total // 20, _LARGEST_RESERVE) if reserve is None else reserve


def stream_limit(store: int, partitions: int, asked: int | None) -> int:
    """Return the most that the stream may hold in a store of `store` bytes, at most what was asked for.

    Always less than the store: in a store that is full, receivers could no longer commit their offsets, nor shippers
    keep their positions.
    """
    positions = min(store // 16, _LARGEST_POSITIONS_SHARE)
    share = min(_BUCKETS_SHARE + partitions * _PARTITION_SHARE + positions, store // 4)
    room = max(store - share, 1)
    return room if asked is None else min(asked, room)


def render(conf: ServerConf) -> str:
    """Return the text of the configuration file."""
    lines = [
        "# written by logbroker at every start: change its settings, not this file",
        *([conf.own] if conf.own else []),
        f"server_name: {quoted(conf.name)}",
        f"listen: {_address(conf.listen)}",
        *([f"http: {_address(conf.http)}"] if conf.http else []),
        *([f"http_base_path: {quoted(conf.http_path)}"] if conf.http and conf.http_path else []),
        f"ports_file_dir: {quoted(conf.folder)}",
        "logtime: false",
        f"max_payload: {MAX_PAYLOAD}",
        # a line that takes a minute for a pull is slow and not dead; under TLS there is no second try
        'write_deadline: "60s"',
        'write_timeout: "retry"',
        'ping_interval: "20s"',
        "ping_max: 2",
        "reconnect_error_reports: 60  # attempts to reach other servers, one a second",
        # clients are told to go elsewhere; where there is nowhere to go, waiting helps nobody
        f'lame_duck_grace_period: "{"1s" if conf.cluster else "100ms"}"',
        'lame_duck_duration: "30s"',
        "feature_flags { js_ack_fc_v2: false }  # nats-py cannot read these acknowledgements yet",
        "jetstream {",
        f"  store_dir: {quoted(conf.folder)}",
        f"  max_file_store: {conf.max_store}",
        f"  max_memory_store: {conf.max_memory}",
        *([f"  domain: {quoted(conf.sites.name)}"] if conf.sites else []),
        "  sync_interval: always  # acknowledged means on disk",
        *render_encryption(conf.cipher),
        "  limits {",
        "    max_request_batch: 10000",
        "    default_max_consumers: -1  # one per partition, and one per shipper that starts",
        "  }",
        "}",
        *(client_section(conf.tls) if conf.tls else []),
        *(render_accounts(conf.accounts) if conf.accounts else []),
        *(render_cluster(conf.cluster) if conf.cluster else []),
        *(render_sites(conf.sites) if conf.sites else []),
    ]
    return "\n".join(lines) + "\n"


def _address(address: Address) -> str:
    # nats-server takes 0 as its default port, and -1 as any free one
    return quoted(str(Address(address.host, address.port or -1)))
