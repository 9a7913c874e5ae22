"""The settings of logreceiver: every option, environment variable (LOGRECEIVER_…) and key of the TOML file."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    field_validator,
    model_validator,
)
from pydantic_settings import SettingsConfigDict

from broker.app.address import OptionalListen
from broker.app.configuration import Many
from broker.app.exits import ConfigurationError
from broker.app.units import Duration
from broker.client.access_settings import ACCESS, AccessSettings, Servers
from receiver.ownership import FileMode, FolderMode, Mode, owner_name, permissions_of
from receiver.permissions import Permissions
from receiver.storage.layout import DEFAULT, Layout
from receiver.zones import zone_name

__all__ = [
    "ASKING",
    "REPLAY_FIELDS",
    "VERIFY_FIELDS",
    "ReceiverSettings",
    "ReplaySettings",
    "VerifySettings",
]

ASKING = ACCESS | {"server", "log_level", "log_format"}
"""The names of the settings of commands that ask the broker."""

REPLAY_FIELDS = ASKING | {
    *("since", "until", "host", "file", "partition", "speed", "output"),
    *("rotate_size", "rotate_every", "time_zone", "compress", "path_template"),
}
VERIFY_FIELDS = ASKING | {
    *("since", "host", "partition", "output", "state_dir", "path_template", "time_zone"),
}

_SMALLEST_BATCH = 1024 * 1024


def _split_partitions(value: object) -> object:
    """Return the words of a setting of partitions: given several times, or with commas."""
    parts = (value,) if isinstance(value, str | int) else value
    if not isinstance(parts, list | tuple):
        return value
    return tuple(word.strip() for part in parts for word in str(part).split(","))


def _one_per_line(value: object) -> object:
    return tuple(value.splitlines()) if isinstance(value, str) else value


def _check_pairs(pairs: tuple[str, ...]) -> tuple[str, ...]:
    for pair in pairs:
        key, equals, _ = pair.partition("=")
        if not equals or not key.startswith("spark."):
            raise ValueError(f"{pair!r} is no setting of Spark; write spark.name=value")
    return pairs


def _checked_template(text: str) -> str:
    return Layout(text).template


class ReceiverSettings(AccessSettings):
    """The settings of logreceiver."""

    model_config = SettingsConfigDict(env_prefix="LOGRECEIVER_")
    program: ClassVar[str] = "logreceiver"

    sections: ClassVar[Mapping[str, Collection[str]]] = {
        "Receiving": (
            *("partition", "once", "standby", "takeover_after", "patience", "max_batch", "linger"),
            "listen",
        ),
        "Files": ("output", "path_template", "file_mode", "folder_mode", "owner", "state_dir"),
        "Rotation": (
            *("rotate_size", "rotate_every", "time_zone", "keep", "keep_age", "keep_bytes"),
            "compress",
        ),
        "Connection": ("server",),
        "Spark": ("master", "executor_python", "spark_conf"),
    }

    partition: Annotated[tuple[str, ...], BeforeValidator(_split_partitions)] = Field(
        (),
        description="Partition to receive, or `all`; may be given several times, or as 0,3,5.",
        json_schema_extra={"metavar": "N"},
    )
    server: Servers = Field(
        ("nats://127.0.0.1:4222",),
        description="Address of the broker; may be given several times.",
        json_schema_extra={"metavar": "URL"},
    )
    output: Path = Field(
        Path("/var/log/logship"),
        description="Folder of the received files, one per host.",
        json_schema_extra={"metavar": "DIR"},
    )
    path_template: Annotated[str, AfterValidator(_checked_template)] = Field(
        DEFAULT,
        description=(
            "Path of a host's file below --output, of {host}, {file} (the source file's path) and {date} (the day, in "
            "--time-zone, on which a line reached the broker): e.g. {host}/{file} or {host}/{date}.log."
        ),
        json_schema_extra={"metavar": "PATH"},
    )
    file_mode: FileMode = Field(
        Mode(0o640),
        description="Mode of files; the umask has no say in it.",
        json_schema_extra={"metavar": "MODE"},
    )
    folder_mode: FolderMode = Field(
        Mode(0o750),
        description="Mode of folders below --output.",
        json_schema_extra={"metavar": "MODE"},
    )
    owner: Annotated[str, AfterValidator(owner_name)] = Field(
        "",
        description="User that files and folders are given to, user:group, or :group; by name or number. Needs the right to.",
        json_schema_extra={"metavar": "USER:GROUP"},
    )
    state_dir: Path | None = Field(
        None,
        description="Folder of stores and locks; it belongs to the files. Default: .logreceiver in --output.",
        json_schema_extra={"metavar": "DIR"},
    )
    once: bool = Field(
        False,
        description="Receive what is there, commit it, and exit 0 instead of waiting for more.",
    )
    standby: bool = Field(
        False,
        description="Wait while another receiver owns a partition, and take it over only when that one is gone.",
    )
    takeover_after: Duration = Field(
        timedelta(seconds=15),
        description="With --standby: how long an owner may give no sign of life.",
        json_schema_extra={"metavar": "TIME"},
    )
    patience: Duration = Field(
        timedelta(seconds=15),
        description="With --once: how long to wait for the broker.",
        json_schema_extra={"metavar": "TIME"},
    )
    rotate_size: ByteSize = Field(
        ByteSize(100_000_000),
        description="Size from which a file is closed and numbered; 0 for never.",
        json_schema_extra={"metavar": "SIZE"},
    )
    rotate_every: Duration = Field(
        timedelta(days=1),
        description=(
            "Time after which a file is closed and numbered, aligned to the clock of --time-zone, by when its lines "
            "reached the broker: 1h at full hours, 1d at midnight, 1w on Mondays; 0 for never."
        ),
        json_schema_extra={"metavar": "TIME"},
    )
    time_zone: Annotated[str, AfterValidator(zone_name)] = Field(
        "UTC",
        description="Time zone whose hours and days --rotate-every goes by, e.g. Europe/Berlin; local is this machine's.",
        json_schema_extra={"metavar": "ZONE"},
    )
    keep: Annotated[int, Field(ge=0)] = Field(
        0,
        description="Closed files to keep per host; 0 keeps all.",
        json_schema_extra={"metavar": "N"},
    )
    keep_age: Duration = Field(
        timedelta(0),
        description="Time behind the newest line for which closed files are kept, e.g. 30d; 0 keeps all.",
        json_schema_extra={"metavar": "TIME"},
    )
    keep_bytes: ByteSize = Field(
        ByteSize(0),
        description="Bytes of closed files to keep in all, as they are on disk; the oldest go first. 0 keeps all.",
        json_schema_extra={"metavar": "SIZE"},
    )
    compress: Literal["none", "zstd", "gzip"] = Field(
        "none",
        description="How closed files are compressed, after their commit.",
        json_schema_extra={"metavar": "zstd|gzip|none"},
    )
    max_batch: ByteSize = Field(
        ByteSize(64_000_000),
        description="Bytes of messages that a batch takes in, at most; bounds memory and repeated work.",
        json_schema_extra={"metavar": "SIZE"},
    )
    linger: Duration = Field(
        timedelta(milliseconds=50),
        description="Pause between the beginnings of small batches: less latency or less CPU.",
        json_schema_extra={"metavar": "TIME"},
    )

    master: str = Field(
        "local[*]",
        description=(
            "Where Spark runs: local[*], or an existing cluster: spark://host:7077, yarn, k8s://https://host:port."
        ),
        json_schema_extra={"metavar": "URL"},
    )
    executor_python: str = Field(
        "python3",
        description=(
            "On a cluster: the Python of the executors, of the minor version that this program runs on; it needs none of "
            "our packages."
        ),
        json_schema_extra={"metavar": "PATH"},
    )
    spark_conf: Annotated[
        tuple[str, ...], BeforeValidator(_one_per_line), AfterValidator(_check_pairs)
    ] = Field(
        (),
        description="A setting of Spark as spark.name=value, which wins over ours; may be given several times.",
        json_schema_extra={"metavar": "KEY=VALUE"},
    )
    listen: OptionalListen = Field(
        None,
        description="Address for /metrics (Prometheus) and /healthz, e.g. 127.0.0.1:9465; none by default.",
        json_schema_extra={"metavar": "ADDR:PORT"},
    )

    @field_validator("partition")
    @classmethod
    def _check_partition(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            if word != "all" and not (word.isascii() and word.isdigit()):
                raise ValueError(f"{word!r} is no partition: give numbers from 0, or all")
        return words

    @field_validator("max_batch")
    @classmethod
    def _check_max_batch(cls, size: ByteSize) -> ByteSize:
        if size < _SMALLEST_BATCH:
            raise ValueError("a batch takes in at least 1MiB")
        return size

    @model_validator(mode="after")
    def _check_standby(self) -> Self:
        if self.standby and self.once:
            raise ValueError("--once and --standby exclude each other: one ends, the other waits")
        return self

    @property
    def spark(self) -> dict[str, str]:
        """The settings of Spark that were asked for."""
        return dict(pair.split("=", 1) for pair in self.spark_conf)

    @property
    def permissions(self) -> Permissions:
        """Modes and ids of what is made; raises ConfigurationError without the rights to give them."""
        return permissions_of(self.file_mode, self.folder_mode, self.owner)

    @property
    def state(self) -> Path:
        """The state folder."""
        return self.state_dir or self.output / ".logreceiver"

    @property
    def numbers(self) -> frozenset[int] | None:
        """The partitions to receive; None for all, however many there are."""
        if "all" in self.partition:
            return None
        return frozenset(map(int, self.partition))

    def wanted(self, partitions: int, beyond: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Return the partitions to receive, of `partitions` that there are and those `beyond`; raises ConfigurationError."""
        if self.numbers is None:
            return (*range(partitions), *beyond)
        numbers = tuple(sorted(self.numbers))
        for number in numbers:
            if number >= partitions and number not in beyond:
                raise ConfigurationError(
                    f"partition {number} does not exist: the broker has {partitions}, 0 to {partitions - 1}; "
                    "give another --partition, or all"
                )
        return numbers


class StreamSettings(ReceiverSettings):
    """The settings of commands that read the streams again: of which partitions and hosts."""

    host: Many = Field(
        (),
        description="Only hosts that match; may be given several times.",
        json_schema_extra={"metavar": "GLOB"},
    )
    partition: Annotated[tuple[str, ...], BeforeValidator(_split_partitions)] = Field(
        ("all",),
        description="Only these partitions; may be given several times, or as 0,3,5.",
        json_schema_extra={"metavar": "N"},
    )


class ReplaySettings(StreamSettings):
    """The settings of logreceiver replay."""

    model_config = SettingsConfigDict(env_prefix="LOGRECEIVER_")

    since: str = Field(
        description=(
            "Where to begin: a time such as 2026-11-20T10:00 (of --time-zone, or with a zone of its own), today, "
            "yesterday, a time back from now such as 2h or 1d, earliest, or a sequence such as seq:12345."
        ),
        json_schema_extra={"metavar": "PLACE"},
    )
    until: str = Field(
        "now",
        description="Where to end, in the same words; that line itself is left out.",
        json_schema_extra={"metavar": "PLACE"},
    )
    file: Many = Field(
        (),
        description=(
            "Only lines of source files that match: their path, or their name when there is no slash in the glob; "
            "may be given several times."
        ),
        json_schema_extra={"metavar": "GLOB"},
    )
    speed: Literal["instant", "original"] = Field(
        "instant",
        description="How fast: instant, or original (as lines were stored).",
        json_schema_extra={"metavar": "instant|original"},
    )
    output: Path = Field(
        description="Folder for the files, empty or new; - for one stream of all lines on standard output.",
        json_schema_extra={"metavar": "DIR"},
    )
    rotate_size: ByteSize = Field(
        ByteSize(0),
        description="Size from which a file is closed and numbered; 0 for never.",
        json_schema_extra={"metavar": "SIZE"},
    )
    rotate_every: Duration = Field(
        timedelta(),
        description="Time after which a file is closed and numbered, as for a receiver; 0 for never.",
        json_schema_extra={"metavar": "TIME"},
    )


class VerifySettings(StreamSettings):
    """The settings of logreceiver verify."""

    model_config = SettingsConfigDict(env_prefix="LOGRECEIVER_")

    since: str = Field(
        "earliest",
        description="Where to begin: a time, today, a time back from now such as 2h, earliest, or seq:12345.",
        json_schema_extra={"metavar": "PLACE"},
    )
