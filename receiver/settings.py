"""What logreceiver can be told: every option, environment variable (LOGRECEIVER_…) and key of the TOML file."""

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
from broker.app.durations import Duration
from broker.app.exits import ConfigurationError
from broker.client.access_settings import ACCESS, Servers
from receiver.ownership import FileMode, FolderMode, Mode, group_name, owner_name, permissions_of
from receiver.permissions import Permissions
from receiver.spark_settings import SparkSettings
from receiver.storage.layout import DEFAULT, Layout
from receiver.zones import zone_name

__all__ = ["ASKING", "ReceiverSettings", "split_partitions"]

ASKING = ACCESS | {"server", "log_level", "log_format"}
"""The names of the settings of commands that ask the broker."""

_SMALLEST_BATCH = 1024 * 1024


def split_partitions(value: object) -> object:
    """Return the words of a setting of partitions: given several times, or with commas."""
    parts = (value,) if isinstance(value, str | int) else value
    if not isinstance(parts, list | tuple):
        return value
    return tuple(word.strip() for part in parts for word in str(part).split(","))


def _checked_template(text: str) -> str:
    return Layout(text).template


class ReceiverSettings(SparkSettings):
    """The settings of logreceiver."""

    model_config = SettingsConfigDict(env_prefix="LOGRECEIVER_")
    program: ClassVar[str] = "logreceiver"

    partition: Annotated[tuple[str, ...], BeforeValidator(split_partitions)] = Field(
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
        description="User that files and folders are given to, or user:group; by name or number. Needs the right to.",
        json_schema_extra={"metavar": "USER"},
    )
    group: Annotated[str, AfterValidator(group_name)] = Field(
        "",
        description="Group that files and folders are given to.",
        json_schema_extra={"metavar": "GROUP"},
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
    def permissions(self) -> Permissions:
        """Modes and ids of what is made; raises ConfigurationError without the rights to give them."""
        return permissions_of(self.file_mode, self.folder_mode, self.owner, self.group)

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
