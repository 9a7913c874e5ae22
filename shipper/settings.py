"""What a shipper can be told; options, variables (LOGSHIPPER_…), keys, defaults and help all come from here."""

import os
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field
from pydantic_settings import SettingsConfigDict

from nats_logship.app.address import OptionalListen
from nats_logship.app.configuration import Many, option
from nats_logship.app.service import merge_reloaded
from nats_logship.app.units import Duration
from nats_logship.client.access_settings import AccessSettings
from nats_logship.wire.subjects import validate_host
from shipper.expressions import expression
from shipper.sources.files.paths import Selection

Compression = Literal["auto", "zstd", "none"]


def _host(value: str) -> str:
    return validate_host(value) if value else value


def _alone(value: tuple[str, ...]) -> tuple[str, ...]:
    if "-" in value and len(value) > 1:
        raise ValueError("- (standard input) cannot be combined with files; run a second shipper")
    return value


def _expressions(value: object) -> object:
    lines = tuple(value.splitlines()) if isinstance(value, str) else value
    for text in lines if isinstance(lines, tuple | list) else ():
        expression(str(text))
    return lines


Lines = Annotated[tuple[str, ...], BeforeValidator(_expressions)]
"""Regular expressions: an option given several times, a list in TOML, one per line in the environment."""


class ShipperSettings(AccessSettings):
    """The settings of `logshipper`."""

    model_config = SettingsConfigDict(env_prefix="LOGSHIPPER_")
    program = "logshipper"
    credential_kinds = ("host", "admin", "monitor")

    sections: ClassVar[Mapping[str, Collection[str]]] = {
        "Files": (
            *("file", "exclude", "from_", "ignore_older", "hold_deleted", "watch", "poll_every"),
            "state_dir",
        ),
        "Lines": ("include_lines", "exclude_lines", "max_line", "grace"),
        "Publishing": ("host", "ack", "compression", "round_size", "take_over"),
        "Running": ("once", "patience", "listen"),
    }

    file: Annotated[Many, AfterValidator(_alone)] = option(
        (),
        "PATH_OR_GLOB",
        "File to follow, or a glob in quotes; may be given several times. - is standard input.",
    )
    exclude: Many = option(
        (), "GLOB", "File or folder to leave out, or a glob of them; may be given several times."
    )
    from_: Literal["beginning", "end"] = Field(
        "beginning",
        description="Where to begin in files that are there at the start and were never seen: "
        "beginning or end.",
    )
    ignore_older: Duration | None = Field(
        None,
        description="Pass over files that were never seen and were not written for this long, "
        "until they are.",
    )
    hold_deleted: Duration = Field(
        timedelta(hours=6),
        description="How long a file is kept open that was deleted and is not read to its end, which takes its "
        "space, or that was moved where it is not found.",
    )
    watch: bool = Field(True, description="Notice changes sooner by inotify; without, only poll.")
    poll_every: Annotated[Duration, Field(gt=timedelta(0))] = Field(
        timedelta(seconds=1),
        description="How often to look at every file and folder, besides inotify; more rarely "
        "when that takes long.",
    )
    host: Annotated[str, AfterValidator(_host)] = option(
        "", "NAME", "Name that the lines are shipped under; by default the name of this machine."
    )
    state_dir: Path | None = option(
        None,
        "DIR",
        "Folder where standard input is kept until it is acknowledged; by default $STATE_DIRECTORY, "
        "/var/lib/logshipper where that can be written, else ~/.local/state/logship.",
    )
    once: bool = Field(False, description="Ship what is there, and end when it is acknowledged.")
    take_over: bool = Field(
        False,
        description="Take over from an agent of the same host on this machine, which ends "
        "when it next writes to the broker, within a minute; without, this one "
        "ends.",
    )
    patience: Duration = Field(
        timedelta(seconds=15), description="With --once: how long to wait for the broker."
    )
    ack: bool = Field(
        True,
        description="Wait for acknowledgements; without them lines may be lost, repeated or "
        "reordered.",
    )
    compression: Compression = Field(
        "auto", description="Compression of rounds: auto (from 4 KiB on), zstd or none."
    )
    max_line: Annotated[ByteSize, Field(ge=1024, le=4 * 1024 * 1024)] = Field(
        ByteSize(1024 * 1024), description="Longest line in bytes that is shipped in one piece."
    )
    round_size: Annotated[ByteSize, Field(ge=64 * 1024, le=64 * 1024 * 1024)] = Field(
        ByteSize(7 * 1024 * 1024),
        description="Most bytes of lines that are published at a time. Lines on their way "
        "take up to seven times as much memory, and 10 MiB, beside the program "
        "itself (some 45 MiB, and 5 KiB for each file).",
    )
    grace: Duration = Field(
        timedelta(seconds=5),
        description="How long a rotated file's last line may stay unfinished before it is shipped; the next "
        "file waits twice as long at most.",
    )
    include_lines: Lines = option(
        (),
        "REGEX",
        "Regular expression: ship only lines that it is found in; may be given several times.",
    )
    exclude_lines: Lines = option(
        (),
        "REGEX",
        "Regular expression: leave out lines that it is found in, after --include-lines; may be given several times.",
    )
    listen: OptionalListen = option(
        None,
        "ADDR:PORT",
        "Address for /metrics (Prometheus) and /healthz, e.g. 127.0.0.1:9464; none by default.",
    )

    @property
    def is_input(self) -> bool:
        """Whether standard input is read, not files."""
        return self.file == ("-",)

    @property
    def credential_host(self) -> str:
        """The host that the file with the credential names, if it names one."""
        return str(self.from_files.get("host", ""))

    @property
    def spool_dir(self) -> Path:
        """The folder that standard input is spooled to; systemd's STATE_DIRECTORY is the default where it is set."""
        if given := self.state_dir or os.environ.get("STATE_DIRECTORY", "").split(":")[0]:
            return Path(given)
        shared = Path("/var/lib/logshipper")
        is_ours = os.access(shared if shared.is_dir() else shared.parent, os.W_OK)
        return shared if is_ours else Path.home() / ".local/state/logship"

    @property
    def selection(self) -> Selection:
        """Which files are followed, and where in them reading begins."""
        older, is_end = self.ignore_older, self.from_ == "end"
        nanoseconds = None if older is None else int(older.total_seconds() * 1_000_000_000)
        return Selection.of(self.file, self.exclude, from_end=is_end, ignore_older=nanoseconds)


_AT_ONCE = {
    *("file", "exclude", "from_", "ignore_older", "hold_deleted", "grace", "include_lines"),
    *("exclude_lines", "round_size", "compression", "log_level", "log_format"),
}


def reload(old: ShipperSettings, new: ShipperSettings) -> tuple[ShipperSettings, str]:
    """Return the settings that count now that `new` was read again, and a line on what changed."""
    standard_input = {"file"} if "-" in (*old.file, *new.file) else set()
    return merge_reloaded(old, new, _AT_ONCE - standard_input)
