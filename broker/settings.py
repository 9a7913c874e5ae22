"""The settings of logbroker: options, variables (LOGBROKER_…) and keys of the TOML file."""

import platform
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, PlainSerializer
from pydantic_settings import SettingsConfigDict

from broker.topology import Topology
from nats_logship.app.address import Address, Listen, OptionalListen, parse_address
from nats_logship.app.configuration import Table, option, split_texts
from nats_logship.app.exits import ConfigurationError
from nats_logship.app.units import Duration, format_duration, format_size
from nats_logship.client.access_settings import ACCESS, AccessSettings
from nats_logship.wire.interval import MAX_INTERVAL
from nats_logship.wire.streams import MAX_PARTITIONS, MAX_STREAMS

_SCHEMES = ("", "nats-route", "nats-leaf", "nats", "tls")
_CLUSTER_REPLICAS = 3  # one of the servers may be lost
_LEAST_SPACE = 1024 * 1024  # bytes of all streams
_LEAST_INTERVAL, _MOST_INTERVAL = timedelta(milliseconds=20), timedelta(seconds=MAX_INTERVAL)
_MOST_AGE = timedelta(days=100_000)  # nanoseconds of it fit into 64 bits


def parse_route(value: object) -> Address:
    """Return the address of another server, from a URL or host:port; raises ValueError.

    A password in it is refused: every process of the machine sees a command line.
    """
    scheme, _, address = str(value).strip().rpartition("://")
    if "@" in address:
        shown = address.rpartition("@")[2]
        raise ValueError(f"the URL of {shown} holds a password; use --cluster-secret-file")
    found = parse_address(address.rstrip("/"))
    if scheme not in _SCHEMES or ":" not in address or not found.port:
        raise ValueError(f"{address!r} has no port; write nats-route://host:6222")
    return found


def _validate_age(age: timedelta) -> timedelta:
    if not timedelta(seconds=1) <= age <= _MOST_AGE:
        raise ValueError(f"must be from 1s to {format_duration(_MOST_AGE)}")
    return age


def _validate_space(size: ByteSize) -> ByteSize:
    if size < _LEAST_SPACE:
        raise ValueError(f"must be at least {format_size(_LEAST_SPACE)}")
    return size


def _validate_interval(interval: timedelta) -> timedelta:
    if not _LEAST_INTERVAL <= interval <= _MOST_INTERVAL:
        raise ValueError("must be from 20ms to 1m")
    return interval


Route = Annotated[Address, BeforeValidator(parse_route), PlainSerializer(str)]
Routes = Annotated[tuple[Route, ...], BeforeValidator(split_texts)]
SiteName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
SiteNames = Annotated[tuple[SiteName, ...], BeforeValidator(split_texts)]
Size = Annotated[ByteSize, Field(gt=0, le=2**63 - 1)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]


class BrokerSettings(AccessSettings):
    """The settings of logbroker; each command uses some of them.

    A setting of the streams without a default keeps the broker's value, so that a limit that an
    operator set by hand stays. Settings of a cluster need `cluster`, those of sites need `site`.
    """

    model_config = SettingsConfigDict(env_prefix="LOGBROKER_")
    program: ClassVar[str] = "logbroker"
    credential_kinds = ("admin", "monitor")
    secrets = (
        *AccessSettings.secrets,
        *("encryption_key_file", "server_cert", "server_key", "site_nkey"),
    )
    section: ClassVar[str] = "Server"
    sections: ClassVar[Mapping[str, Collection[str]]] = {
        "Security": (
            *("allow_anonymous", "encryption_key_file", "server_cert", "server_key", "client_ca"),
            *("host_connections", "receiver_connections"),
        ),
        "Cluster": ("cluster", "cluster_listen", "route", "cluster_secret_file"),
        "Other sites": ("site", "site_listen", "site_remote", "site_nkey", "mirror", "source"),
        "Streams": ("partitions", "streams", "max_age", "max_bytes", "discard", "replicas"),
    }

    store_dir: Path | None = option(
        None, "DIR", "Folder of the broker's data; default: $STATE_DIRECTORY of systemd."
    )
    listen: Listen = option(
        Address("127.0.0.1", 4222), "HOST:PORT", "Address for clients; port 0 takes a free port."
    )
    http: OptionalListen = option(
        Address("127.0.0.1", 8222),
        "HOST:PORT",
        "Address of nats-server's monitoring, or off; DIR/broker.json has its URL.",
    )
    metrics: OptionalListen = option(
        None, "HOST:PORT", "Address for /metrics (Prometheus) and /healthz, e.g. 127.0.0.1:9463."
    )
    reserve: ByteSize | None = Field(
        None, description="Space to keep free on the disk; default: 5 % of it, at most 20 GiB."
    )
    rounds: Annotated[int, Field(ge=0, le=2**31 - 1)] = option(
        200,
        "N",
        "Rounds a second of all hosts above which each host sends less often; 0: no limit.",
    )
    longest_interval: Annotated[Duration, AfterValidator(_validate_interval)] = Field(
        timedelta(seconds=2), description="Longest time between two rounds that --rounds asks for."
    )
    max_streams: Count | None = option(
        None, "N", "Limit of streams and buckets, including those of logbroker.", file_only=True
    )
    max_consumers: Count | None = option(
        None,
        "N",
        "Limit of consumers of a stream; receivers, readers and new shippers need some.",
        file_only=True,
    )
    memory: Size = Field(
        ByteSize(512 * 1024 * 1024),
        description="Memory limit that nats-server aims at (GOMEMLIMIT).",
    )
    server_name: Annotated[str, Field(pattern=r"^[^\s.*>\x00-\x1f\x7f]*$")] = option(
        "", "NAME", "Name of the server in logs and clusters; default: the name of the machine."
    )
    nats: Table = Field({}, description="Settings of nats-server that have no option here.")
    console: Table = Field({}, description="Options of `logbroker console`.")

    allow_anonymous: bool = Field(
        False, description="Listen on the network without credentials: anybody can connect."
    )
    encryption_key_file: Path | None = option(
        None, "FILE", "File with the key that encrypts the store, at least 16 bytes; never lose it."
    )
    server_cert: Path | None = option(
        None, "FILE", "Certificate and its chain; default: DIR/tls/broker.pem (`tls init`)."
    )
    server_key: Path | None = option(
        None, "FILE", "Private key of --server-cert, if it is not in the same file."
    )
    client_ca: Path | None = option(
        None, "FILE", "Authorities of client certificates; default: DIR/tls/authority.pem."
    )
    host_connections: Count = option(
        50_000,
        "N",
        "Limit of connections of all hosts together; nats-server takes 65536 in all.",
        file_only=True,
    )
    receiver_connections: Count = option(
        10_000,
        "N",
        "Limit of connections of all receivers together; each has a few.",
        file_only=True,
    )

    cluster: Annotated[str, Field(pattern=r"^[^\s.*>]*$")] = option(
        "", "NAME", "Name of the cluster; the same for all its servers."
    )
    cluster_listen: Listen = option(
        Address("127.0.0.1", 6222), "HOST:PORT", "Address for the other servers of the cluster."
    )
    route: Routes = option(
        (), "URL", "--cluster-listen of another server, nats-route://host:6222; repeatable."
    )
    cluster_secret_file: Path | None = option(
        None,
        "FILE",
        "File with the secret of the cluster; needed unless --cluster-listen is on loopback.",
    )

    site: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]*$")] = option(
        "", "NAME", "Name of this site (its JetStream domain)."
    )
    site_listen: OptionalListen = option(
        None, "HOST:PORT", "Address for brokers of other sites, e.g. 0.0.0.0:7422."
    )
    site_remote: Routes = option(
        (), "URL", "--site-listen of another site, nats-leaf://host:7422; repeatable."
    )
    site_nkey: Path | None = option(
        None, "FILE", "Credential file for --site-remote (`credentials add site` there)."
    )
    mirror: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]*$")] | None = option(
        None, "SITE", "Mirror that site's lines and take no others; '' ends the mirror."
    )
    source: SiteNames = option(
        (), "SITE", "Copy the lines of that site into the streams of this one; repeatable."
    )

    partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] = option(
        10, "N", "Number of partitions of hosts; change it later with `logbroker partitions`."
    )
    streams: Annotated[int, Field(ge=1, le=MAX_STREAMS)] | None = option(
        None, "S", "Number of streams of partitions; fixed at the first start; default: 1."
    )
    max_age: Annotated[Duration, AfterValidator(_validate_age)] = Field(
        timedelta(days=1), description="How long lines are kept for receivers that do not run."
    )
    max_bytes: Annotated[Size, AfterValidator(_validate_space)] | None = Field(
        None, description="Limit of all streams together, e.g. 50GB; less if the disk is smaller."
    )
    discard: Literal["old", "new"] = Field(
        "new",
        description="When the streams are full: new lines wait at their host, or old ones go.",
    )
    replicas: Annotated[int, Field(ge=1, le=5)] | None = option(
        None,
        "N",
        "Copies of each line; default: 3 for `run` in a cluster, else unchanged (new: 1).",
    )

    @property
    def name(self) -> str:
        """The name of the server, by default that of the machine."""
        return self.server_name or platform.node().replace(".", "-") or "logbroker"

    def changes(self) -> Topology:
        """Return what a command declares that changes only the settings that are given.

        Raises `ConfigurationError` for sources without a name of this site.
        """
        if self.source and not self.site:
            raise ConfigurationError("--source needs --site, the name of this site")
        given = self.model_fields_set
        options = {"max_age": "max_age", "discard": "discard", "sources": "source"}
        kept = frozenset(field for field, name in options.items() if name not in given)
        return replace(self.topology(), kept=kept)

    def topology(self) -> Topology:
        """Return the streams and buckets that must exist on the broker; defaults are declared."""
        return Topology(
            partitions=self.partitions,
            partitions_given="partitions" in self.model_fields_set,
            stream_count=self.streams or 1,
            streams_given=self.streams is not None,
            max_age=self.max_age,
            max_bytes=None if self.max_bytes is None else int(self.max_bytes),
            discard=self.discard,
            replicas=self.replicas or (_CLUSTER_REPLICAS if self.cluster else None),
            mirror=self.mirror,
            sources=self.source if self.site else None,
        )


_LOG = {"log_level", "log_format"}
_STREAMS = {*BrokerSettings.sections["Streams"]}
RUN_FIELDS = frozenset(BrokerSettings.model_fields) - ACCESS
APPLY_FIELDS = frozenset(_LOG | _STREAMS | {"site", "mirror", "source"} | ACCESS)
STATUS_FIELDS = frozenset(_LOG | ACCESS)
STORE_FIELDS = frozenset(_LOG | {"store_dir"})
