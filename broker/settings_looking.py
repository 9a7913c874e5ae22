"""The settings of `logbroker check`: from where on something is a warning, and from where on it is critical."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from broker.app.configuration import ProgramSettings
from broker.app.durations import Duration

__all__ = ["CHECK_FIELDS", "LookingSettings"]

Percent = Annotated[int, Field(ge=0, le=100)]
Count = Annotated[int, Field(ge=0)]


class LookingSettings(ProgramSettings):
    """Thresholds, in the words of `nats server check` where it has them."""

    connect_warn: Duration = Field(
        timedelta(milliseconds=500),
        description="connection: to connect may take so long.",
        json_schema_extra={"metavar": "TIME"},
    )
    connect_critical: Duration = Field(
        timedelta(seconds=1),
        description="connection: critical from there on.",
        json_schema_extra={"metavar": "TIME"},
    )
    rtt_warn: Duration = Field(
        timedelta(milliseconds=500),
        description="connection: the server may take so long for a word and its answer.",
        json_schema_extra={"metavar": "TIME"},
    )
    rtt_critical: Duration = Field(
        timedelta(seconds=1),
        description="connection: critical from there on.",
        json_schema_extra={"metavar": "TIME"},
    )
    lag_warn: Count | None = Field(
        None,
        description="lag: so many messages of a partition may wait for its receiver; default: any number.",
        json_schema_extra={"metavar": "MSGS"},
    )
    lag_critical: Count | None = Field(
        None,
        description="lag: critical from there on.",
        json_schema_extra={"metavar": "MSGS"},
    )
    age_warn: Duration = Field(
        timedelta(minutes=10),
        description="lag: the oldest of them may have waited so long.",
        json_schema_extra={"metavar": "TIME"},
    )
    age_critical: Duration = Field(
        timedelta(hours=1),
        description="lag: critical from there on, and from four fifths of the stream's max_age on.",
        json_schema_extra={"metavar": "TIME"},
    )
    store_warn: Percent = Field(
        75,
        description="store: so much of it may be used, in percent; of what no receiver has, where logbroker purges what they have.",
        json_schema_extra={"metavar": "PERCENT"},
    )
    store_critical: Percent = Field(
        90,
        description="store: critical from there on.",
        json_schema_extra={"metavar": "PERCENT"},
    )
    peer_expect: Count | None = Field(
        None,
        description="replicas: so many servers hold the stream; default: as many as it is configured for.",
        json_schema_extra={"metavar": "SERVERS"},
    )
    peer_lag_critical: Count = Field(
        200,
        description="replicas: one that is so many operations behind does not count.",
        json_schema_extra={"metavar": "OPS"},
    )
    peer_seen_critical: Duration = Field(
        timedelta(seconds=10),
        description="replicas: nor one that its leader has not heard of for so long.",
        json_schema_extra={"metavar": "TIME"},
    )
    silent_warn: Duration | None = Field(
        timedelta(hours=1),
        description="hosts: one may be silent for so long; those whose lines the stream still has are known.",
        json_schema_extra={"metavar": "TIME"},
    )
    silent_critical: Duration | None = Field(
        None,
        description="hosts: critical from there on; default: never.",
        json_schema_extra={"metavar": "TIME"},
    )
    rate_warn: Count | None = Field(
        1000,
        description="hosts: one may send so many messages a second; a shipper sends some dozens, however many lines there are.",
        json_schema_extra={"metavar": "MSGS"},
    )
    rate_critical: Count | None = Field(
        None,
        description="hosts: critical from there on; default: never.",
        json_schema_extra={"metavar": "MSGS"},
    )
    validity_warn: Duration = Field(
        timedelta(days=30),
        description="certificates: so long before the end of one.",
        json_schema_extra={"metavar": "TIME"},
    )
    validity_critical: Duration = Field(
        timedelta(days=7),
        description="certificates: critical from there on.",
        json_schema_extra={"metavar": "TIME"},
    )


CHECK_FIELDS = frozenset(LookingSettings.__annotations__)
"""The names of the settings above: those of `logbroker check` alone."""
