"""What logbroker can be told: every option, environment variable (LOGBROKER_…) and key of the TOML file."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, ByteSize, Field, field_validator
from pydantic_settings import SettingsConfigDict

from broker.app.address import Address, Listen, OptionalListen
from broker.app.configuration import ProgramSettings, Table
from broker.app.units import Duration, format_duration
from broker.client.access_settings import ACCESS, AccessSettings, Servers
from broker.settings_network import ClusterSettings, SitesSettings
from broker.settings_security import SecuritySettings
from broker.topology import UNBOUNDED, Topology
from broker.wire.streams import MAX_PARTITIONS, MAX_STREAMS

__all__ = ["APPLY_FIELDS", "RUN_FIELDS", "STATUS_FIELDS", "BrokerSettings"]

_IN_A_CLUSTER = 3  # servers with each line: one of them may be lost
_SHORTEST_AGE, _LONGEST_AGE = (
    timedelta(seconds=1),
    timedelta(days=100_000),
)  # 64 bits of nanoseconds
_MOST = 2**63 - 1


def _count(value: int) -> int:
    if value != UNBOUNDED and not 1 <= value <= _MOST:
        raise ValueError(f"must be at least 1, or {UNBOUNDED} for any number")
    return value


class StreamsSettings(ProgramSettings):
    """The settings that say what must exist on the broker.

    What has no default is left as it is found on a broker, so that a limit that somebody set by hand stays.
    """

    section: ClassVar[str] = "Streams"

    partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] = Field(
        10,
        description="Number of partitions that hosts are spread over; once lines are stored `logbroker partitions` changes it.",
        json_schema_extra={"metavar": "N"},
    )
    streams: Annotated[int, Field(ge=1, le=MAX_STREAMS)] | None = Field(
        None,
        description="Number of streams that partitions are spread over, each with a leader and syncs of its own; fixed at the "
        "first start; default: what is there, at first 1.",
        json_schema_extra={"metavar": "S"},
    )
    max_age: Duration = Field(
        timedelta(days=1),
        description="How long lines are kept for receivers that are away.",
        json_schema_extra={"metavar": "TIME"},
    )
    max_bytes: ByteSize | None = Field(
        None,
        description="The most that all streams together may hold, e.g. 50GB, in equal parts; never more than fits into the store.",
        json_schema_extra={"metavar": "SIZE"},
    )
    max_msgs: Annotated[int, AfterValidator(_count)] | None = Field(
        None,
        description="The most messages (of many lines each) that all streams together may hold; -1: any number.",
        json_schema_extra={"metavar": "N"},
    )
    discard: Literal["old", "new"] = Field(
        "new",
        description="What gives way when the stream is full: new lines wait at their host, or old ones go.",
        json_schema_extra={"metavar": "old|new"},
    )
    replicas: Annotated[int, Field(ge=1, le=5)] | None = Field(
        None,
        description="How many servers of a cluster hold each line; default: what is there, at first 3, or 1 without a cluster.",
        json_schema_extra={"metavar": "N"},
    )

    @field_validator("max_age")
    @classmethod
    def _possible_age(cls, age: timedelta) -> timedelta:
        if not _SHORTEST_AGE <= age <= _LONGEST_AGE:
            raise ValueError(f"must be from 1s to {format_duration(_LONGEST_AGE)}")
        return age

    @field_validator("max_bytes")
    @classmethod
    def _possible_bytes(cls, size: ByteSize | None) -> ByteSize | None:
        if size is not None and not 0 < size <= _MOST:
            raise ValueError(f"must be more than 0 bytes, and at most {_MOST}")
        return size


class BrokerSettings(
    StreamsSettings,
    SitesSettings,
    ClusterSettings,
    SecuritySettings,
    AccessSettings,
):
    """The settings of logbroker; a command uses those that concern it."""

    model_config = SettingsConfigDict(env_prefix="LOGBROKER_")
    program: ClassVar[str] = "logbroker"
    section: ClassVar[str] = "Server"

    store_dir: Path | None = Field(
        None,
        description=(
            "Folder of the broker's data, made when it is not there; default: $STATE_DIRECTORY of systemd."
        ),
        json_schema_extra={"metavar": "DIR"},
    )
    listen: Listen = Field(
        Address("127.0.0.1", 4222),
        description="Where clients connect; port 0 takes a free one and writes it to DIR/broker.json.",
        json_schema_extra={"metavar": "HOST:PORT"},
    )
    http: OptionalListen = Field(
        Address("127.0.0.1", 8222),
        description="Where nats-server's monitoring answers; with credentials under a secret path, which is in DIR/broker.json. '' turns "
        "it off.",
        json_schema_extra={"metavar": "HOST:PORT", "may_be_empty": True},
    )
    metrics: OptionalListen = Field(
        None,
        description="Address for /metrics (Prometheus) and /healthz, e.g. 127.0.0.1:9463; none by default.",
        json_schema_extra={"metavar": "HOST:PORT"},
    )
    server: Servers = Field(
        ("nats://127.0.0.1:4222",),
        description="Address of a running broker; may be given several times.",
        json_schema_extra={"metavar": "URL"},
    )
    max_store: ByteSize | None = Field(
        None,
        description="The most that all data may take on disk; default: what is free now, less --reserve.",
        json_schema_extra={"metavar": "SIZE"},
    )
    reserve: ByteSize | None = Field(
        None,
        description="What stays free on the disk; default: a twentieth of it, at most 20 GiB.",
        json_schema_extra={"metavar": "SIZE"},
    )
    memory: ByteSize = Field(
        ByteSize(512 * 1024 * 1024),
        description="Memory that nats-server tries to stay below, in bytes or as 512MiB (GOMEMLIMIT).",
        json_schema_extra={"metavar": "SIZE"},
    )
    server_name: Annotated[str, Field(pattern=r"^[^\s.*>\x00-\x1f\x7f]*$")] = Field(
        "",
        description="Name of the server in logs and clusters; default: this machine's name.",
        json_schema_extra={"metavar": "NAME"},
    )
    nats_server: Path | None = Field(
        None,
        description="The nats-server to run; default: the one of the package, then the one on PATH.",
        json_schema_extra={"file_only": True, "metavar": "PATH"},
    )

    nats: Table = Field(
        {},
        description="Table of nats-server's own settings, by their names, for what there is no option for.",
    )

    @field_validator("max_store", "memory")
    @classmethod
    def _not_nothing(cls, size: ByteSize | None) -> ByteSize | None:
        if size is not None and size <= 0:
            raise ValueError("must be more than 0 bytes")
        return size

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
