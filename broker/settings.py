"""What logbroker can be told: every option, environment variable (LOGBROKER_…) and key of the TOML file."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ByteSize, Field, field_validator
from pydantic_settings import SettingsConfigDict

from broker.app.address import Address, Listen, OptionalListen
from broker.app.configuration import Table
from broker.client.access_settings import ACCESS, AccessSettings, Servers
from broker.settings_cluster import ClusterSettings
from broker.settings_retention import RetentionSettings
from broker.settings_security import SecuritySettings
from broker.settings_sites import SitesSettings
from broker.settings_topology import TopologySettings
from broker.topology import Topology

__all__ = ["APPLY_FIELDS", "RUN_FIELDS", "STATUS_FIELDS", "BrokerSettings"]

_IN_A_CLUSTER = 3  # servers with each line: one of them may be lost


class BrokerSettings(
    TopologySettings,
    RetentionSettings,
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
        declared = replace(
            super().topology(), mirror=self.mirror, sources=self.source if self.site else None
        )
        if declared.replicas is None and self.cluster:
            return replace(declared, replicas=_IN_A_CLUSTER)
        return declared


_LOG = {"log_level", "log_format"}
_TOPOLOGY = set(TopologySettings.model_fields)  # those of the log among them
_CLIENT = ACCESS | {"server"}
RUN_FIELDS = frozenset(BrokerSettings.model_fields) - _CLIENT
APPLY_FIELDS = frozenset(_TOPOLOGY | {"site", "mirror", "source"} | _CLIENT)
STATUS_FIELDS = frozenset(_LOG | _CLIENT)
