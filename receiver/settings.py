"""The settings of logreceiver: every option, environment variable (LOGRECEIVER_…) and key of the TOML file."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

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

_NEVER = timedelta(0)
_SMALLEST_BATCH = 1024 * 1024


def _option(default: Any, metavar: str, description: str) -> Any:
    """Return a field, `metavar` being what its option takes; a default of `...` makes it a required one."""
    return Field(default, description=description, json_schema_extra={"metavar": metavar})


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


Partitions = Annotated[tuple[str, ...], BeforeValidator(_split_partitions)]
Template = Annotated[str, AfterValidator(lambda text: Layout(text).template)]
SparkSettings = Annotated[
    tuple[str, ...], BeforeValidator(_one_per_line), AfterValidator(_check_pairs)
]


class ReceiverSettings(AccessSettings):
    """The settings of logreceiver."""

    model_config = SettingsConfigDict(env_prefix="LOGRECEIVER_")
    program: ClassVar[str] = "logreceiver"

    sections: ClassVar[Mapping[str, Collection[str]]] = {
        "Receiving": (
            *("partition", "once", "standby", "takeover_after", "patience", "max_batch"),
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

    partition: Partitions = _option(
        (), "N", "Partition to receive, or `all`; may be given several times, or as 0,3,5."
    )
    server: Servers = _option(
        ("nats://127.0.0.1:4222",), "URL", "Address of the broker; may be given several times."
    )
    output: Path = _option(
        Path("/var/log/logship"), "DIR", "Folder of the received files, one per host."
    )
    path_template: Template = _option(
        DEFAULT,
        "PATH",
        "Path of a host's file below --output, of {host}, {file} (the source file's path) and {date} (the day, in "
        "--time-zone, on which a line reached the broker): e.g. {host}/{file} or {host}/{date}.log.",
    )
    file_mode: FileMode = _option(Mode(0o640), "MODE", "Mode of files; the umask has no say in it.")
    folder_mode: FolderMode = _option(Mode(0o750), "MODE", "Mode of folders below --output.")
    owner: Annotated[str, AfterValidator(owner_name)] = _option(
        "",
        "USER:GROUP",
        "User that files and folders are given to, user:group, or :group; by name or number. Needs the right to.",
    )
    state_dir: Path | None = _option(
        None,
        "DIR",
        "Folder of stores and locks; it belongs to the files. Default: .logreceiver in --output.",
    )
    once: bool = Field(
        False,
        description="Receive what is there, commit it, and exit 0 instead of waiting for more.",
    )
    standby: bool = Field(
        False,
        description="Wait while another receiver owns a partition, and take it over only when that one is gone.",
    )
    takeover_after: Duration = _option(
        timedelta(seconds=15), "TIME", "With --standby: how long an owner may give no sign of life."
    )
    patience: Duration = _option(
        timedelta(seconds=15), "TIME", "With --once: how long to wait for the broker."
    )
    rotate_size: ByteSize = _option(
        ByteSize(100_000_000), "SIZE", "Size from which a file is closed and numbered; 0 for never."
    )
    rotate_every: Duration = _option(
        timedelta(days=1),
        "TIME",
        "Time after which a file is closed and numbered, aligned to the clock of --time-zone, by when its lines "
        "reached the broker: 1h at full hours, 1d at midnight, 1w on Mondays; 0 for never.",
    )
    time_zone: Annotated[str, AfterValidator(zone_name)] = _option(
        "UTC",
        "ZONE",
        "Time zone whose hours and days --rotate-every goes by, e.g. Europe/Berlin; local is this machine's.",
    )
    keep: Annotated[int, Field(ge=0)] = _option(
        0, "N", "Closed files to keep per host; 0 keeps all."
    )
    keep_age: Duration = _option(
        _NEVER,
        "TIME",
        "Time behind the newest line for which closed files are kept, e.g. 30d; 0 keeps all.",
    )
    keep_bytes: ByteSize = _option(
        ByteSize(0),
        "SIZE",
        "Bytes of closed files to keep in all, as they are on disk; the oldest go first. 0 keeps all.",
    )
    compress: Literal["none", "zstd", "gzip"] = _option(
        "none", "zstd|gzip|none", "How closed files are compressed, after their commit."
    )
    max_batch: ByteSize = _option(
        ByteSize(64_000_000),
        "SIZE",
        "Bytes of messages that a batch takes in, at most; bounds memory and repeated work.",
    )
    master: str = _option(
        "local[*]",
        "URL",
        "Where Spark runs: local[*], or an existing cluster: spark://host:7077, yarn, k8s://https://host:port.",
    )
    executor_python: str = _option(
        "python3",
        "PATH",
        "On a cluster: the Python of the executors, of the minor version that this program runs on; it needs none of "
        "our packages.",
    )
    spark_conf: SparkSettings = _option(
        (),
        "KEY=VALUE",
        "A setting of Spark as spark.name=value, which wins over ours; may be given several times.",
    )
    listen: OptionalListen = _option(
        None,
        "ADDR:PORT",
        "Address for /metrics (Prometheus) and /healthz, e.g. 127.0.0.1:9465; none by default.",
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
        there = (*range(partitions), *beyond)
        numbers = there if self.numbers is None else tuple(sorted(self.numbers))
        if absent := [number for number in numbers if number not in there]:
            raise ConfigurationError(
                f"partition {absent[0]} does not exist: the broker has {partitions}, 0 to {partitions - 1}; "
                "give another --partition, or all"
            )
        return numbers


class StreamSettings(ReceiverSettings):
    """The settings of commands that read the streams again: of which partitions and hosts."""

    host: Many = _option((), "GLOB", "Only hosts that match; may be given several times.")
    partition: Partitions = _option(
        ("all",), "N", "Only these partitions; may be given several times, or as 0,3,5."
    )


class ReplaySettings(StreamSettings):
    """The settings of logreceiver replay."""

    model_config = SettingsConfigDict(env_prefix="LOGRECEIVER_")

    since: str = _option(
        ...,
        "PLACE",
        "Where to begin: a time such as 2026-11-20T10:00 (of --time-zone, or with a zone of its own), today, "
        "yesterday, a time back from now such as 2h or 1d, earliest, or a sequence such as seq:12345.",
    )
    until: str = _option(
        "now", "PLACE", "Where to end, in the same words; that line itself is left out."
    )
    file: Many = _option(
        (),
        "GLOB",
        "Only lines of source files that match: their path, or their name when there is no slash in the glob; "
        "may be given several times.",
    )
    speed: Literal["instant", "original"] = _option(
        "instant", "instant|original", "How fast: instant, or original (as lines were stored)."
    )
    output: Path = _option(
        ...,
        "DIR",
        "Folder for the files, empty or new; - for one stream of all lines on standard output.",
    )
    rotate_size: ByteSize = _option(
        ByteSize(0), "SIZE", "Size from which a file is closed and numbered; 0 for never."
    )
    rotate_every: Duration = _option(
        _NEVER,
        "TIME",
        "Time after which a file is closed and numbered, as for a receiver; 0 for never.",
    )


class VerifySettings(StreamSettings):
    """The settings of logreceiver verify."""

    model_config = SettingsConfigDict(env_prefix="LOGRECEIVER_")

    since: str = _option(
        "earliest",
        "PLACE",
        "Where to begin: a time, today, a time back from now such as 2h, earliest, or seq:12345.",
    )
