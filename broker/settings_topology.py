"""What logbroker can be told of the streams, the buckets and the consumers; of it all follows the declaration."""

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    TypeAdapter,
    ValidationInfo,
    field_validator,
)

from broker.app.configuration import Many, ProgramSettings
from broker.app.durations import Duration, format_duration
from broker.topology import UNBOUNDED, Topology
from broker.wire.streams import MAX_PARTITIONS, MAX_STREAMS

__all__ = ["TopologySettings"]

_SHORTEST_AGE = timedelta(seconds=1)
_LONGEST = timedelta(days=100_000)  # the server counts nanoseconds in 64 bits
_SHORTEST_WINDOW = timedelta(milliseconds=100)  # the server's own limit
_SMALLEST_MESSAGE = 4096  # bytes: our headers and a line must fit
_LARGEST_MESSAGE = 2**31 - 1
_MOST = 2**63 - 1
_LONGEST_DESCRIPTION = 4096  # the server's own limits, of this and of all metadata
_MOST_METADATA = 128 * 1024
_NOT_YOURS = ("_nats.", "logship.")
_SIZE: TypeAdapter[ByteSize] = TypeAdapter(ByteSize)


def _message_size(value: object) -> int:
    size = UNBOUNDED if str(value).strip() == str(UNBOUNDED) else int(_SIZE.validate_python(value))
    if size != UNBOUNDED and not _SMALLEST_MESSAGE <= size <= _LARGEST_MESSAGE:
        raise ValueError(f"must be from {_SMALLEST_MESSAGE} bytes to 2GiB, or {UNBOUNDED} for any")
    return size


def _count(value: int) -> int:
    if value != UNBOUNDED and not 1 <= value <= _MOST:
        raise ValueError(f"must be at least 1, or {UNBOUNDED} for any number")
    return value


def _metadata(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        name, separator, _ = value.partition("=")
        if not (name and separator) or name.startswith(_NOT_YOURS):
            raise ValueError(
                f"{value!r} is not NAME=VALUE with a name that is neither the server's nor ours"
            )
    if sum(len(value.encode()) for value in values) > _MOST_METADATA:
        raise ValueError(f"may have {_MOST_METADATA} bytes in all")
    return values


Count = Annotated[int, AfterValidator(_count)]
MessageSize = Annotated[int, BeforeValidator(_message_size)]
Metadata = Annotated[Many, AfterValidator(_metadata)]
PlacementName = Annotated[str, Field(pattern=r"^[^\s.*>\x00-\x1f\x7f]*$")]


class TopologySettings(ProgramSettings):
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
    max_msgs: Count | None = Field(
        None,
        description="The most messages (of many lines each) that all streams together may hold; -1: any number.",
        json_schema_extra={"metavar": "N"},
    )
    max_msg_size: MessageSize | None = Field(
        None,
        description="The largest message that the stream takes, headers included; shippers cut their rounds to it; "
        "-1: whatever the server takes.",
        json_schema_extra={"file_only": True, "metavar": "SIZE"},
    )
    max_consumers: Count | None = Field(
        None,
        description="The most consumers of the stream: one per partition, and one for each shipper while it starts; "
        "-1: any number.",
        json_schema_extra={"file_only": True, "metavar": "N"},
    )
    discard: Literal["old", "new"] = Field(
        "new",
        description="What gives way when the stream is full: new lines wait at their host, or old ones go.",
        json_schema_extra={"metavar": "old|new"},
    )
    max_msgs_per_subject: Count | None = Field(
        None,
        description="The most messages of one host that the stream holds, beyond which the host's oldest go, received or "
        "not; -1: any number.",
        json_schema_extra={"file_only": True, "metavar": "N"},
    )
    discard_new_per_subject: bool = Field(
        False,
        description="Let a host wait instead that has max_msgs_per_subject messages in the stream.",
        json_schema_extra={"file_only": True},
    )
    storage: Literal["file", "memory"] = Field(
        "file",
        description="Where stream and buckets are; in memory, all is gone when the server stops. Cannot be changed.",
        json_schema_extra={"file_only": True, "metavar": "file|memory"},
    )
    replicas: Annotated[int, Field(ge=1, le=5)] | None = Field(
        None,
        description="How many servers of a cluster hold each line; default: what is there, at first 3, or 1 without a cluster.",
        json_schema_extra={"metavar": "N"},
    )
    compression: Literal["none", "s2"] | None = Field(
        None,
        description="Compress what is stored; what shippers sent compressed gains nothing, and reading costs more.",
        json_schema_extra={"file_only": True, "metavar": "none|s2"},
    )
    placement_cluster: PlacementName | None = Field(
        None,
        description="Name of the cluster that must hold stream and buckets; '' for any.",
        json_schema_extra={"file_only": True, "metavar": "NAME"},
    )
    placement_tags: Many = Field(
        (),
        description="Tag (server_tags) that servers must have to hold stream and buckets; may be given several times.",
        json_schema_extra={"file_only": True, "metavar": "TAG"},
    )
    duplicate_window: Duration = Field(
        _SHORTEST_WINDOW,
        description="How long the server remembers Nats-Msg-Id headers, which foreign publishers may send and shippers "
        "do not need; all hosts share that memory: within it, one's message is dropped as another's duplicate.",
        json_schema_extra={"file_only": True, "metavar": "TIME"},
    )
    description: Annotated[str, Field(max_length=_LONGEST_DESCRIPTION)] | None = Field(
        None,
        description="Description of the stream, for people who look at it.",
        json_schema_extra={"file_only": True, "metavar": "TEXT"},
    )
    metadata: Metadata = Field(
        (),
        description="NAME=VALUE for the stream's metadata; may be given several times.",
        json_schema_extra={"file_only": True, "metavar": "NAME=VALUE"},
    )

    @field_validator("max_age")
    @classmethod
    def _possible_age(cls, age: timedelta) -> timedelta:
        if not _SHORTEST_AGE <= age <= _LONGEST:
            raise ValueError(f"must be from 1s to {format_duration(_LONGEST)}")
        return age

    @field_validator("max_bytes")
    @classmethod
    def _possible_bytes(cls, size: ByteSize | None) -> ByteSize | None:
        if size is not None and not 0 < size <= _MOST:
            raise ValueError(f"must be more than 0 bytes, and at most {_MOST}")
        return size

    @field_validator("max_consumers")
    @classmethod
    def _enough_consumers(cls, most: int | None, info: ValidationInfo) -> int | None:
        partitions = info.data.get("partitions", 1)
        if most is not None and UNBOUNDED < most < partitions:
            raise ValueError(f"must be at least {partitions}: each partition needs a consumer")
        return most

    @field_validator("discard_new_per_subject")
    @classmethod
    def _what_is_full(cls, wanted: bool, info: ValidationInfo) -> bool:
        most = info.data.get("max_msgs_per_subject")
        if wanted and (most is None or most == UNBOUNDED):
            raise ValueError("needs max_msgs_per_subject, the number at which a host waits")
        if wanted and info.data.get("discard") == "old":
            raise ValueError("needs discard = new")
        return wanted

    @field_validator("duplicate_window")
    @classmethod
    def _possible_window(cls, window: timedelta, info: ValidationInfo) -> timedelta:
        longest = info.data.get("max_age", _LONGEST)
        if not _SHORTEST_WINDOW <= window <= longest:
            raise ValueError(f"must be from 0.1s to max_age, which is {format_duration(longest)}")
        return window

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
            max_msg_size=self.max_msg_size,
            max_msgs_per_subject=self.max_msgs_per_subject,
            max_consumers=self.max_consumers,
            discard=self.discard,
            discard_new_per_subject=self.discard_new_per_subject,
            storage=self.storage,
            replicas=self.replicas,
            compression=self.compression,
            placement_cluster=self.placement_cluster,
            placement_tags=self.placement_tags,
            duplicate_window=self.duplicate_window,
            description=self.description,
            metadata=self.metadata,
        )
