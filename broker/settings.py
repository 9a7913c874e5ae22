"""What logbroker can be told: every option, environment variable (LOGBROKER_…) and key of the TOML file."""

import platform
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, PlainSerializer
from pydantic_settings import SettingsConfigDict

from broker.topology import Topology
from nats_logship.app.address import Address, Listen, OptionalListen, parse_address
from nats_logship.app.configuration import Table, option, split_texts
from nats_logship.app.units import Duration, format_duration
from nats_logship.client.access_settings import ACCESS, AccessSettings
from nats_logship.wire.streams import MAX_PARTITIONS, MAX_STREAMS

_SCHEMES = ("", "nats-route", "nats-leaf", "nats", "tls")
_IN_A_CLUSTER = 3  # servers with each line: one of them may be lost
_MOST_AGE = timedelta(days=100_000)  # 64 bits of nanoseconds


def parse_route(value: object) -> Address:
    """Return where another server listens for its like; raises ValueError.

    A secret does not belong there: every process of the machine sees a command line.
    """
    scheme, _, address = str(value).strip().rpartition("://")
    if "@" in address:
        shown = address.rpartition("@")[2]
        raise ValueError(f"{shown!r} comes with a password; leave it to --cluster-secret-file")
    found = parse_address(address.rstrip("/"))
    if scheme not in _SCHEMES or ":" not in address or not found.port:
        raise ValueError(f"{address!r} names no port; write nats-route://host:6222")
    return found


def _age(age: timedelta) -> timedelta:
    if not timedelta(seconds=1) <= age <= _MOST_AGE:
        raise ValueError(f"must be from 1s to {format_duration(_MOST_AGE)}")
    return age


Route = Annotated[Address, BeforeValidator(parse_route), PlainSerializer(str)]
Routes = Annotated[tuple[Route, ...], BeforeValidator(split_texts)]
Site = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
Sites = Annotated[tuple[Site, ...], BeforeValidator(split_texts)]
Size = Annotated[ByteSize, Field(gt=0, le=2**63 - 1)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]


class BrokerSettings(AccessSettings):
    """The settings of logbroker; a command uses those that concern it.

    What of the streams has no default is left as it is found on a broker, so that a limit that somebody set by hand stays.
    Nothing of a cluster counts without `cluster`, nothing of other sites without `site`.
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
        Address("127.0.0.1", 4222), "HOST:PORT", "Where clients connect; 0 takes a free port."
    )
    http: OptionalListen = option(
        Address("127.0.0.1", 8222),
        "HOST:PORT",
        "Where nats-server's monitoring answers, with credentials under a path of DIR/broker.json; off for none.",
    )
    metrics: OptionalListen = option(
        None, "HOST:PORT", "Address for /metrics (Prometheus) and /healthz, e.g. 127.0.0.1:9463."
    )
    reserve: ByteSize | None = Field(
        None, description="What stays free on the disk; default: a twentieth of it, at most 20 GiB."
    )
    max_streams: Count | None = option(
        None, "N", "Most streams and buckets that JetStream takes, ours among them.", file_only=True
    )
    max_consumers: Count | None = option(
        None,
        "N",
        "Most consumers of a stream: ours, and those of readers and of new shippers.",
        file_only=True,
    )
    memory: Size = Field(
        ByteSize(512 * 1024 * 1024), description="Memory that nats-server tries to stay below."
    )
    server_name: Annotated[str, Field(pattern=r"^[^\s.*>\x00-\x1f\x7f]*$")] = option(
        "", "NAME", "Name of the server in logs and clusters; default: this machine's name."
    )
    nats: Table = Field({}, description="nats-server's own settings, for what has no option.")

    allow_anonymous: bool = Field(
        False, description="Listen beyond this machine without credentials, for whoever reaches it."
    )
    encryption_key_file: Path | None = option(
        None, "FILE", "Key that the store is encrypted with, at least 16 bytes; needed for ever."
    )
    server_cert: Path | None = option(
        None, "FILE", "Certificate and its chain; default: DIR/tls/broker.pem (`tls init`)."
    )
    server_key: Path | None = option(
        None, "FILE", "Private key of --server-cert, unless it stands in that file."
    )
    client_ca: Path | None = option(
        None, "FILE", "Authorities of others' certificates; default: DIR/tls/authority.pem."
    )
    host_connections: Count = option(
        50_000, "N", "Most connections of all hosts, of nats-server's 65536.", file_only=True
    )
    receiver_connections: Count = option(
        10_000, "N", "Most connections of all receivers; each has a few.", file_only=True
    )

    cluster: Annotated[str, Field(pattern=r"^[^\s.*>]*$")] = option(
        "", "NAME", "Name of the cluster that this broker is of; all of its servers say the same."
    )
    cluster_listen: Listen = option(
        Address("127.0.0.1", 6222), "HOST:PORT", "Where the other servers of the cluster connect."
    )
    route: Routes = option(
        (), "URL", "Where a server of the cluster listens, nats-route://host:6222; several times."
    )
    cluster_secret_file: Path | None = option(
        None, "FILE", "Secret of the cluster; needed where --cluster-listen is not on loopback."
    )

    site: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]*$")] = option(
        "", "NAME", "Name of this site among others (its JetStream domain)."
    )
    site_listen: OptionalListen = option(
        None, "HOST:PORT", "Where brokers of other sites connect, e.g. 0.0.0.0:7422."
    )
    site_remote: Routes = option(
        (), "URL", "Where another site listens for this one, nats-leaf://host:7422; several times."
    )
    site_nkey: Path | None = option(
        None, "FILE", "Seed by which --site-remote knows this site (`credentials add site`)."
    )
    mirror: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]*$")] | None = option(
        None, "SITE", "Hold a copy of that site's lines and take no others; '' ends that."
    )
    source: Sites = option(
        (), "SITE", "Take in the lines of another site beside one's own; several times."
    )

    partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] = option(
        10, "N", "Partitions that hosts are spread over; changed later by `logbroker partitions`."
    )
    streams: Annotated[int, Field(ge=1, le=MAX_STREAMS)] | None = option(
        None, "S", "Streams that partitions are spread over; fixed at the first start; default: 1."
    )
    max_age: Annotated[Duration, AfterValidator(_age)] = Field(
        timedelta(days=1), description="How long lines are kept for receivers that are away."
    )
    max_bytes: Size | None = Field(
        None,
        description="The most that all streams together may hold, e.g. 50GB; at most what fits.",
    )
    discard: Literal["old", "new"] = Field(
        "new",
        description="When the streams are full: new lines wait at their host, or old ones go.",
    )
    replicas: Annotated[int, Field(ge=1, le=5)] | None = option(
        None, "N", "Servers that hold each line; default: what is there, at first 3 in a cluster."
    )

    @property
    def name(self) -> str:
        """The name of the server."""
        return self.server_name or platform.node().replace(".", "-") or "logbroker"

    def topology(self) -> Topology:
        """Return what must exist on the broker."""
        return Topology(
            partitions=self.partitions,
            partitions_given="partitions" in self.model_fields_set,
            stream_count=self.streams or 1,
            streams_given=self.streams is not None,
            max_age=self.max_age,
            max_bytes=None if self.max_bytes is None else int(self.max_bytes),
            discard=self.discard,
            replicas=self.replicas or (_IN_A_CLUSTER if self.cluster else None),
            mirror=self.mirror,
            sources=self.source if self.site else None,
        )


_LOG = {"log_level", "log_format"}
_STREAMS = {*BrokerSettings.sections["Streams"]}
RUN_FIELDS = frozenset(BrokerSettings.model_fields) - ACCESS
APPLY_FIELDS = frozenset(_LOG | _STREAMS | {"site", "mirror", "source"} | ACCESS)
STATUS_FIELDS = frozenset(_LOG | ACCESS)
STORE_FIELDS = frozenset(_LOG | {"store_dir"})
