"""What logbroker can be told: every option, environment variable (LOGBROKER_…) and key of the TOML file."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ByteSize, Field
from pydantic_settings import SettingsConfigDict

from broker.app.address import Address, Listen, OptionalListen, parse_address
from broker.app.configuration import Many, ProgramSettings, Table
from broker.app.units import Duration, format_duration
from broker.auth.accounts import AccountLimits
from broker.client.access_settings import ACCESS, AccessSettings, Servers
from broker.topology import UNBOUNDED, Topology
from broker.wire.streams import MAX_PARTITIONS, MAX_STREAMS

__all__ = [
    "APPLY_FIELDS",
    "RUN_FIELDS",
    "SITE_SCHEME",
    "STATUS_FIELDS",
    "BrokerSettings",
    "SecuritySettings",
    "parse_route",
]

SITE_SCHEME = "nats-leaf://"
"""How an address of another site may begin."""

_ROUTE_SCHEMES = ("nats-route://", "nats://", "tls://")
_SITE_NAME = r"^[A-Za-z0-9_-]*$"
_OF_A_SITE = ("mirror", "site_listen", "site_nkey", "site_remote", "source")
_IN_A_CLUSTER = 3  # servers with each line: one of them may be lost
_MOST_AGE = timedelta(days=100_000)  # 64 bits of nanoseconds
_MOST = 2**63 - 1


def _setting(default: Any, metavar: str, description: str, **extra: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"metavar": metavar, **extra})


def _count(value: int) -> int:
    if value != UNBOUNDED and not 1 <= value <= _MOST:
        raise ValueError(f"must be at least 1, or {UNBOUNDED} for any number")
    return value


def _age(age: timedelta) -> timedelta:
    if not timedelta(seconds=1) <= age <= _MOST_AGE:
        raise ValueError(f"must be from 1s to {format_duration(_MOST_AGE)}")
    return age


def _size(size: ByteSize) -> ByteSize:
    if not 0 < size <= _MOST:
        raise ValueError(f"must be more than 0 bytes, and at most {_MOST}")
    return size


def parse_route(text: str) -> Address:
    """Return where another server listens for its like; raises ValueError.

    A secret does not belong there: every process of the machine sees a command line.
    """
    address = text.strip()
    for scheme in _ROUTE_SCHEMES:
        address = address.removeprefix(scheme)
    if "@" in address:
        raise ValueError(
            f"{text.rpartition('@')[2]!r} comes with a password; leave it to --cluster-secret-file"
        )
    found = parse_address(address.rstrip("/"))
    if ":" not in address or not found.port:
        raise ValueError(f"{text!r} names no port; write nats-route://host:6222")
    return found


def _routes(routes: tuple[str, ...]) -> tuple[str, ...]:
    for route in routes:
        parse_route(route)
    return routes


def _remotes(remotes: tuple[str, ...]) -> tuple[str, ...]:
    for remote in remotes:
        try:
            parse_route(remote.removeprefix(SITE_SCHEME))
        except ValueError:
            raise ValueError(
                f"{remote!r} is not {SITE_SCHEME}host:port, without a password"
            ) from None
    return remotes


def _sources(sites: tuple[str, ...]) -> tuple[str, ...]:
    for site in sites:
        if not site or not re.match(_SITE_NAME, site):
            raise ValueError(f"{site!r} is no name of a site: letters, digits, '-' and '_'")
    return sites


Size = Annotated[ByteSize, AfterValidator(_size)]
Connections = Annotated[int, Field(ge=1, le=2**31 - 1)]


class StreamsSettings(ProgramSettings):
    """The settings that say what must exist on the broker.

    What has no default is left as it is found on a broker, so that a limit that somebody set by hand stays.
    """

    section: ClassVar[str] = "Streams"

    partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] = _setting(
        10,
        "N",
        "Number of partitions that hosts are spread over; once lines are stored `logbroker partitions` changes it.",
    )
    streams: Annotated[int, Field(ge=1, le=MAX_STREAMS)] | None = _setting(
        None,
        "S",
        "Number of streams that partitions are spread over, each with a leader and syncs of its own; fixed at the "
        "first start; default: what is there, at first 1.",
    )
    max_age: Annotated[Duration, AfterValidator(_age)] = _setting(
        timedelta(days=1), "TIME", "How long lines are kept for receivers that are away."
    )
    max_bytes: Size | None = _setting(
        None,
        "SIZE",
        "The most that all streams together may hold, e.g. 50GB, in equal parts; never more than fits into the store.",
    )
    max_msgs: Annotated[int, AfterValidator(_count)] | None = _setting(
        None,
        "N",
        "The most messages (of many lines each) that all streams together may hold; -1: any number.",
    )
    discard: Literal["old", "new"] = _setting(
        "new",
        "old|new",
        "What gives way when the stream is full: new lines wait at their host, or old ones go.",
    )
    replicas: Annotated[int, Field(ge=1, le=5)] | None = _setting(
        None,
        "N",
        "How many servers of a cluster hold each line; default: what is there, at first 3, or 1 without a cluster.",
    )


class ClusterSettings(ProgramSettings):
    """What makes one of several servers of a broker; nothing of it counts without `cluster`."""

    section: ClassVar[str] = "Cluster"

    cluster: Annotated[str, Field(pattern=r"^[^\s.*>]*$")] = _setting(
        "", "NAME", "Name of the cluster of brokers that this one is of; all of them say the same."
    )
    cluster_listen: Listen = _setting(
        Address("127.0.0.1", 6222), "HOST:PORT", "Where the other servers of the cluster connect."
    )
    route: Annotated[Many, AfterValidator(_routes)] = _setting(
        (),
        "URL",
        "Where another server of the cluster listens, nats-route://host:6222; may be given several times, "
        "and may name this one too.",
    )
    cluster_secret_file: Path | None = _setting(
        None,
        "FILE",
        "File with the secret that the servers of the cluster share; without one --cluster-listen must be this "
        "machine's own.",
    )


class SitesSettings(ProgramSettings):
    """What makes this broker one of several sites; nothing of it counts without `site`."""

    section: ClassVar[str] = "Other sites"

    site: Annotated[str, Field(pattern=_SITE_NAME)] = _setting(
        "",
        "NAME",
        "Name of this site among others (its JetStream domain); no two may have the same.",
    )
    site_listen: OptionalListen = _setting(
        None,
        "HOST:PORT",
        "Where brokers of other sites connect, e.g. 0.0.0.0:7422; not at all by default.",
    )
    site_remote: Annotated[Many, AfterValidator(_remotes)] = _setting(
        (),
        "URL",
        "Where another site listens for this one, nats-leaf://host:7422; may be given several times.",
    )
    site_nkey: Path | None = _setting(
        None,
        "FILE",
        "File with the seed that --site-remote knows this site by (`logbroker credentials add site`).",
    )
    mirror: Annotated[str, Field(pattern=_SITE_NAME)] | None = _setting(
        None,
        "SITE",
        "Hold a copy of that site's lines, same sequences and all, and take none of one's own, until "
        "`logbroker promote`.",
    )
    source: Annotated[Many, AfterValidator(_sources)] = _setting(
        (),
        "SITE",
        "Take in the lines of another site beside one's own; may be given several times.",
    )

    def contradiction(self) -> str:
        """Return what does not go together among these settings; empty when all does."""
        if not self.site:
            alone = next((name for name in _OF_A_SITE if getattr(self, name)), "")
            option = alone.replace("_", "-")
            return f"--{option} takes a --site, the name of this one" if alone else ""
        if self.mirror and self.source:
            return "--mirror and --source exclude each other: a copy takes in nothing else"
        if self.site in (self.mirror, *self.source):
            return f"--mirror and --source name other sites, and this one is {self.site}"
        return ""


class SecuritySettings(ProgramSettings):
    """Who may connect, what is shown to clients, and encryption at rest; `logbroker tls init` needs no options of TLS."""

    section: ClassVar[str] = "Security"

    allow_anonymous: bool = Field(
        False,
        description="Listen beyond this machine without credentials: whoever reaches it may read and write all.",
    )
    encryption_key_file: Path | None = _setting(
        None,
        "FILE",
        "File with the key that the store is encrypted with, at least 16 bytes; it stays needed for ever.",
    )
    encryption_cipher: Literal["chacha20", "aes"] = _setting(
        "chacha20",
        "chacha20|aes",
        "Cipher of a store that is new: chacha20, or aes, faster with many CPUs' instructions for it.",
        file_only=True,
    )
    server_cert: Path | None = _setting(
        None,
        "FILE",
        "Certificate that the server shows, with what leads to its authority; default: DIR/tls/broker.pem, "
        "when `logbroker tls init` made it.",
    )
    server_key: Path | None = _setting(
        None, "FILE", "Private key of --server-cert, unless it stands in that file."
    )
    client_ca: Path | None = _setting(
        None,
        "FILE",
        "Authorities of the certificates that clients and other brokers show; default: DIR/tls/authority.pem.",
    )
    require_certificates: bool = Field(
        False, description="Let nobody in without a certificate, whatever else they show."
    )
    host_connections: Connections = _setting(
        50_000,
        "N",
        "Most connections of all hosts together; what is left of nats-server's 65536 is for others.",
        file_only=True,
    )
    receiver_connections: Connections = _setting(
        10_000,
        "N",
        "Most connections of all receivers together; one has a few, and some for each of Spark's cores.",
        file_only=True,
    )

    @property
    def host_limits(self) -> AccountLimits:
        """What hosts may take; a shipper has a handful of subscriptions."""
        return AccountLimits(self.host_connections, subscriptions=100)

    @property
    def receiver_limits(self) -> AccountLimits:
        """What receivers may take; one has some subscriptions for each partition."""
        return AccountLimits(self.receiver_connections, subscriptions=10_000)

    @property
    def monitor_limits(self) -> AccountLimits:
        """What monitors may take."""
        return AccountLimits(connections=1000, subscriptions=1000)


class BrokerSettings(
    StreamsSettings, SitesSettings, ClusterSettings, SecuritySettings, AccessSettings
):
    """The settings of logbroker; a command uses those that concern it."""

    model_config = SettingsConfigDict(env_prefix="LOGBROKER_")
    program: ClassVar[str] = "logbroker"
    section: ClassVar[str] = "Server"

    store_dir: Path | None = _setting(
        None,
        "DIR",
        "Folder of the broker's data, made when it is not there; default: $STATE_DIRECTORY of systemd.",
    )
    listen: Listen = _setting(
        Address("127.0.0.1", 4222),
        "HOST:PORT",
        "Where clients connect; port 0 takes a free one and writes it to DIR/broker.json.",
    )
    http: OptionalListen = _setting(
        Address("127.0.0.1", 8222),
        "HOST:PORT",
        "Where nats-server's monitoring answers; with credentials under a secret path, which is in DIR/broker.json. '' turns "
        "it off.",
        may_be_empty=True,
    )
    metrics: OptionalListen = _setting(
        None,
        "HOST:PORT",
        "Address for /metrics (Prometheus) and /healthz, e.g. 127.0.0.1:9463; none by default.",
    )
    server: Servers = _setting(
        ("nats://127.0.0.1:4222",),
        "URL",
        "Address of a running broker; may be given several times.",
    )
    max_store: Size | None = _setting(
        None,
        "SIZE",
        "The most that all data may take on disk; default: what is free now, less --reserve.",
    )
    reserve: ByteSize | None = _setting(
        None, "SIZE", "What stays free on the disk; default: a twentieth of it, at most 20 GiB."
    )
    memory: Size = _setting(
        ByteSize(512 * 1024 * 1024),
        "SIZE",
        "Memory that nats-server tries to stay below, in bytes or as 512MiB (GOMEMLIMIT).",
    )
    server_name: Annotated[str, Field(pattern=r"^[^\s.*>\x00-\x1f\x7f]*$")] = _setting(
        "", "NAME", "Name of the server in logs and clusters; default: this machine's name."
    )
    nats_server: Path | None = _setting(
        None,
        "PATH",
        "The nats-server to run; default: the one of the package, then the one on PATH.",
        file_only=True,
    )
    nats: Table = Field(
        {},
        description="Table of nats-server's own settings, by their names, for what there is no option for.",
    )

    def topology(self) -> Topology:
        """Return what must exist on the broker."""
        return Topology(
            partitions=self.partitions,
            partitions_told="partitions" in self.model_fields_set,
            stream_count=self.streams or 1,
            streams_told=self.streams is not None,
            max_age=self.max_age,
            max_bytes=None if self.max_bytes is None else int(self.max_bytes),
            max_msgs=self.max_msgs,
            discard=self.discard,
            replicas=self.replicas or (_IN_A_CLUSTER if self.cluster else None),
            mirror=self.mirror,
            sources=self.source if self.site else None,
        )


_LOG = {"log_level", "log_format"}
_STREAMS = set(StreamsSettings.model_fields)  # those of the log among them
_CLIENT = ACCESS | {"server"}
RUN_FIELDS = frozenset(BrokerSettings.model_fields) - _CLIENT
APPLY_FIELDS = frozenset(_STREAMS | {"site", "mirror", "source"} | _CLIENT)
STATUS_FIELDS = frozenset(_LOG | _CLIENT)
