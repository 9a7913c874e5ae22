"""The settings of logreceiver: its options, variables (LOGRECEIVER_…) and keys of the TOML file."""

import grp
import os
import pwd
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_settings import SettingsConfigDict

from nats_logship.app.address import OptionalListen
from nats_logship.app.configuration import Many, option
from nats_logship.app.exits import ConfigurationError
from nats_logship.app.secret_files import kind_of
from nats_logship.app.units import Duration
from nats_logship.client.access_settings import ACCESS
from receiver.spark.settings import SparkSettings
from receiver.storage.layout import DEFAULT, Layout, Permissions

BROKER_FIELDS = ACCESS | {"log_level", "log_format"}
"""The names of the settings of commands that ask the broker."""

_STREAM_FIELDS = BROKER_FIELDS | {
    *("since", "host", "partition"),
    *("output", "path_template", "time_zone"),
}
REPLAY_FIELDS = _STREAM_FIELDS | {"until", "file", "speed"}
VERIFY_FIELDS = _STREAM_FIELDS | {"state_dir"}

MODELS = (
    "receiver.settings:ReceiverSettings",
    "receiver.settings:ReplaySettings",
    "receiver.search.settings:SearchSettings",
    "receiver.table.settings:TableSettings",
)
"""The models of logreceiver and its commands, as `ProgramSettings.models`."""

_LARGEST_ID = 2**32 - 2  # of users and groups


def _split_partitions(value: object) -> object:
    """Return the items of --partition, which is given several times, or with commas."""
    parts = (value,) if isinstance(value, str | int) else value
    if not isinstance(parts, list | tuple):
        return value
    items = tuple(item.strip() for part in parts for item in str(part).split(","))
    for item in items:
        if item != "all" and not (item.isascii() and item.isdigit()):
            raise ValueError(f"{item!r} is no partition: give numbers from 0, or all")
    return items


def _check_mode(text: str, least: int) -> str:
    """Return a mode that gives the owner at least the rights `least`, and others no write."""
    try:
        mode = int(text, 8)
    except ValueError:
        mode = 0
    if mode & least != least or mode & 0o002 or mode > 0o7777:
        raise ValueError(
            f"{text!r} is no usable mode: the owner needs at least {least:04o}, and others must "
            f"not write; for example {least + 0o040:04o}"
        )
    return text


def _find_ids(owner: str) -> tuple[int, int]:
    """Return the ids of `user`, `user:group` or `:group`, by name or number; -1 for none given."""
    user, _, group = owner.partition(":")
    return (
        _find_id("user", user, lambda: pwd.getpwnam(user).pw_uid),
        _find_id("group", group, lambda: grp.getgrnam(group).gr_gid),
    )


def _find_id(kind: str, name: str, query: Callable[[], int]) -> int:
    if not name or (name.isascii() and name.isdigit() and int(name) <= _LARGEST_ID):
        return int(name or -1)
    try:
        return query()
    except KeyError:
        raise ValueError(f"{kind} {name!r} is not known here; give a name or a number") from None


def _find_zone(text: str) -> str:
    """Return a time zone's name that every machine knows; this machine's zone for `local`."""
    name = text
    if text == "local":  # as the C library finds it
        _, _, link = str(Path("/etc/localtime").resolve()).partition("/zoneinfo/")
        name = os.environ.get("TZ", "").removeprefix(":") or link or "UTC"
    if not _is_zone(name):
        raise ValueError(
            f"time zone {name!r} is not known; give UTC, local, or a name such as Europe/Berlin"
        )
    return name


def _is_zone(name: str) -> bool:
    """Whether every machine knows a time zone by this name; some know further names."""
    try:
        ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # OSError: a folder of zones
        return name == "UTC"
    return name.partition("/")[0] not in ("posix", "right", "posixrules", "localtime")


Partitions = Annotated[tuple[str, ...], BeforeValidator(_split_partitions)]


def find_shares(
    files: Mapping[Path, Mapping[str, Any]],
) -> Iterator[tuple[Path, frozenset[int]]]:
    """Yield each file of settings that is a credential of some partitions alone, with these.

    Raises `ConfigurationError`.
    """
    for path, content in files.items():
        if not kind_of(path.read_text("utf-8")):
            continue
        try:
            named = TypeAdapter(Partitions).validate_python(content.get("partition", "all"))
        except ValidationError:
            raise ConfigurationError(f"{path}: partition: give numbers from 0, or all") from None
        if "all" not in named:
            yield path, frozenset(map(int, named))


def require_whole(files: Mapping[Path, Mapping[str, Any]], command: str) -> None:
    """Raise `ConfigurationError` if a file is a credential of some partitions alone."""
    for path, own in find_shares(files):
        raise ConfigurationError(
            f"{path} is a credential for the partitions {','.join(map(str, sorted(own)))} alone, "
            f"and {command} reads all: `logbroker credentials add receiver NAME --partition all "
            "--store-dir DIR` makes one"
        )


FileMode = Annotated[str, AfterValidator(lambda text: _check_mode(text, 0o600))]
FolderMode = Annotated[str, AfterValidator(lambda text: _check_mode(text, 0o700))]
Owner = Annotated[str, AfterValidator(lambda text: _find_ids(text) and text)]
TimeZone = Annotated[str, AfterValidator(lambda text: _find_zone(text))]
Template = Annotated[str, AfterValidator(lambda text: Layout(text).template)]


class ReceiverSettings(SparkSettings):
    """The settings of logreceiver."""

    model_config = SettingsConfigDict(env_prefix="LOGRECEIVER_")
    models = MODELS
    program: ClassVar[str] = "logreceiver"
    credential_kinds = ("receiver", "admin", "monitor")

    sections: ClassVar[Mapping[str, Collection[str]]] = {
        "Receiving": (
            *("partition", "once", "take_over", "standby", "takeover_after", "patience"),
            *("commit_every", "max_batch", "listen"),
        ),
        "Files": ("output", "path_template", "file_mode", "folder_mode", "owner", "state_dir"),
        "Rotation": (
            *("rotate_size", "rotate_every", "time_zone"),
            *("keep", "keep_age", "keep_bytes", "compress"),
        ),
        "Spark": ("master", "executor_python", "spark_conf"),
    }

    partition: Partitions = option(
        (), "N", "Partition to receive, or `all`; may be given several times, or as 0,3,5."
    )
    output: Path = option(
        Path("/var/log/logship"), "DIR", "Folder of the received files, by default one per host."
    )
    path_template: Template = option(
        DEFAULT,
        "PATH",
        "Path of a host's file below --output, made of {host}, {file} (the source file's path) and "
        "{date} (the day, in --time-zone, on which a line reached the broker), such as "
        "{host}/{file} or {host}/{date}.log, or of {namespace}, {pod} and {container}: "
        "{host}/{namespace}/{pod}/{container}.log.",
    )
    file_mode: FileMode = option("0640", "MODE", "Mode of files; the umask does not change it.")
    folder_mode: FolderMode = option("0750", "MODE", "Mode of folders below --output.")
    owner: Owner = option(
        "",
        "USER:GROUP",
        "Owner of files and folders: user, user:group or :group, by name or number. Needs the "
        "right to change owners.",
    )
    state_dir: Path | None = option(
        None,
        "DIR",
        "Folder of stores and locks of these files. Default: .logreceiver in --output.",
    )
    once: bool = Field(
        False,
        description="Receive and commit the lines that wait, then exit 0.",
    )
    take_over: bool = Field(
        False,
        description="With --once: take partitions from a running receiver, which stops receiving "
        "them. Afterwards nobody receives them until a receiver is started again.",
    )
    standby: bool = Field(
        False,
        description="Wait while another receiver owns a partition, and take it over once that "
        "receiver is gone.",
    )
    takeover_after: Duration = Field(
        timedelta(seconds=15),
        description="With --standby: how long an owner must be silent to be gone.",
    )
    patience: Duration = Field(
        timedelta(seconds=15), description="With --once: how long to wait for the broker."
    )
    rotate_size: ByteSize = Field(
        ByteSize(100_000_000),
        description="Size at which a file is closed and numbered; 0 for never.",
    )
    rotate_every: Duration = Field(
        timedelta(days=1),
        description="Time after which a file is closed and numbered, by when its lines reached "
        "the broker, aligned to the clock of --time-zone: 1h at full hours, 1d at midnight, 1w on "
        "Mondays; 0 for never.",
    )
    time_zone: TimeZone = option(
        "UTC",
        "ZONE",
        "Time zone of the hours and days of --rotate-every, such as Europe/Berlin; local is this "
        "machine's.",
    )
    keep: Annotated[int, Field(ge=0)] = option(
        0, "N", "Closed files to keep for each received file; 0 keeps all."
    )
    keep_age: Duration = Field(
        timedelta(0),
        description="How long closed files are kept, such as 30d, counted back from the newest "
        "line; 0 keeps all.",
    )
    keep_bytes: ByteSize = Field(
        ByteSize(0),
        description="Bytes on disk of all closed files to keep; the oldest are deleted first. 0 "
        "keeps all.",
    )
    compress: Literal["none", "zstd", "gzip"] = Field(
        "none", description="How closed files are compressed, after their commit."
    )
    commit_every: Duration = Field(
        timedelta(seconds=1),
        description="How long the lines of a batch gather before they are synced and committed; "
        "they can be read before. 0 commits each time that no more lines wait at the broker.",
    )
    max_batch: Annotated[ByteSize, Field(ge=2**20)] = Field(
        ByteSize(64_000_000),
        description="Bytes of messages in a batch, at most; limits memory and repeated work.",
    )
    executor_python: str = option(
        "python3",
        "PATH",
        "On a cluster: the Python of the executors, of the same minor version as this program's; "
        "it needs none of our packages.",
    )
    listen: OptionalListen = option(
        None,
        "ADDR:PORT",
        "Address for /metrics (Prometheus) and /healthz, e.g. 127.0.0.1:9465; none by default.",
    )

    @model_validator(mode="after")
    def _check_standby(self) -> Self:
        if self.standby and self.once:
            raise ValueError("--once and --standby exclude each other: one ends, the other waits")
        return self

    @property
    def permissions(self) -> Permissions:
        """Modes and ids of new files and folders."""
        modes = int(self.file_mode, 8), int(self.folder_mode, 8)
        return Permissions(*modes, *_find_ids(self.owner))

    @property
    def state(self) -> Path:
        """The state folder."""
        return self.state_dir or self.output / ".logreceiver"

    @property
    def numbers(self) -> frozenset[int] | None:
        """The partitions to receive, None for all."""
        if "all" in self.partition:
            return None
        return frozenset(map(int, self.partition))

    def require_share(self) -> None:
        """Raise `ConfigurationError` if a file of settings is the credential of fewer partitions.

        The broker would deny the others, request by request.
        """
        for path, own in find_shares(self._files):
            if self.numbers is None or not self.numbers <= own:
                listed = ",".join(map(str, sorted(own)))
                raise ConfigurationError(
                    f"{path} is a credential for the partitions {listed} alone: give --partition "
                    f"{listed}, or a credential for more"
                )

    def select_partitions(self, partitions: int) -> tuple[int, ...]:
        """Return the partitions to receive of so many; raises ConfigurationError."""
        numbers = self.numbers
        numbers = frozenset(range(partitions)) if numbers is None else numbers
        if absent := sorted(numbers - {*range(partitions)}):
            raise ConfigurationError(
                f"partition {absent[0]} does not exist: the broker has {partitions}, 0 to "
                f"{partitions - 1}; give another --partition, or all"
            )
        return tuple(sorted(numbers))


class StreamSettings(ReceiverSettings):
    """The settings of commands that read the streams again: which partitions, hosts and time."""

    section: ClassVar[str] = "Lines"

    host: Many = option((), "GLOB", "Only hosts that match; may be given several times.")
    partition: Partitions = option(
        ("all",), "N", "Only these partitions; may be given several times, or as 0,3,5."
    )
    since: str = option(
        "earliest",
        "PLACE",
        "Where to begin: a time, today, a time ago such as 2h, earliest, or seq:12345.",
    )


class ReplaySettings(StreamSettings):
    """The settings of logreceiver replay."""

    since: str = option(
        ...,
        "PLACE",
        "Where to begin: a time such as 2026-11-20T10:00 (in --time-zone, or with its own zone), "
        "today, yesterday, a time ago such as 2h or 1d, earliest, or a sequence such as seq:12345.",
    )
    until: str = option(
        "now", "PLACE", "Where to end, given like --since, or a time of day after it; not included."
    )
    file: Many = option(
        (),
        "GLOB",
        "Only lines of source files whose path matches, or whose name matches if the glob has no "
        "slash; may be given several times.",
    )
    speed: Literal["instant", "original"] = Field(
        "instant",
        description="How fast: instant, or original (with the pauses of the stored lines).",
    )
    output: Path = option(
        ...,
        "DIR",
        "Folder for the files, empty or new; - writes all lines to standard output.",
    )
