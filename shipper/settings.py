"""The settings of a shipper: options, variables (LOGSHIPPER_…), keys, defaults and help."""

import os
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, model_validator
from pydantic_settings import SettingsConfigDict

from nats_logship.app.address import OptionalListen
from nats_logship.app.configuration import Many, option
from nats_logship.app.service import merge_reloaded
from nats_logship.app.units import Duration
from nats_logship.client.access_settings import AccessSettings
from nats_logship.wire.expressions import expression
from nats_logship.wire.records import RecordForm, Records
from nats_logship.wire.subjects import validate_host
from shipper.sources.files.paths import Selection
from shipper.sources.files.records import Preset, RecordRules

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


def _record_start(value: str) -> str:
    if value:
        Records.of(RecordForm.START, value)
    return value


Lines = Annotated[tuple[str, ...], BeforeValidator(_expressions)]
"""Regular expressions: a repeatable option, a list in TOML, one per line in the environment."""


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
        "Lines": (
            *("include_lines", "exclude_lines", "max_line", "grace", "record_start", "records"),
            *("record_timeout", "record_lines"),
        ),
        "Publishing": ("host", "ack", "compression", "round_size", "take_over"),
        "Running": ("once", "patience", "listen"),
    }

    file: Annotated[Many, AfterValidator(_alone)] = option(
        (),
        "PATH_OR_GLOB",
        "File to follow, or a glob in quotes, or - for standard input; repeatable.",
    )
    exclude: Many = option(
        (), "GLOB", "File, folder or glob to exclude; takes precedence over --file; repeatable."
    )
    from_: Literal["beginning", "end"] = Field(
        "beginning",
        description="Where to start in files that exist at the start and were never followed: "
        "beginning or end.",
    )
    ignore_older: Duration | None = Field(
        None,
        description="Skip files that were never followed and not written for this long; a file is "
        "followed once it is written again.",
    )
    hold_deleted: Duration = Field(
        timedelta(hours=6),
        description="How long to keep a deleted file open, which holds its disk space, until it is "
        "shipped; also a file that was moved out of sight.",
    )
    watch: bool = Field(True, description="Use inotify to notice changes sooner than by polling.")
    poll_every: Annotated[Duration, Field(gt=timedelta(0))] = Field(
        timedelta(seconds=1),
        description="How often to check every file and folder, besides inotify; less often if a "
        "check takes long.",
    )
    host: Annotated[str, AfterValidator(_host)] = option(
        "", "NAME", "Host name that the lines are shipped under (default: name of this machine)."
    )
    state_dir: Path | None = option(
        None,
        "DIR",
        "Folder that keeps standard input until it is acknowledged (default: $STATE_DIRECTORY, or "
        "/var/lib/logshipper if that is writable, or ~/.local/state/logship).",
    )
    once: bool = Field(
        False, description="Ship the lines that exist now, and end when they are acknowledged."
    )
    take_over: bool = Field(
        False,
        description="Take over from an agent that ships for the same host on this machine; that "
        "agent ends within a minute. Without this option the new agent ends.",
    )
    patience: Duration = Field(
        timedelta(seconds=15), description="With --once: how long to wait for the broker."
    )
    ack: bool = Field(
        True,
        description="Wait for acknowledgements; with --no-ack lines may be lost, repeated or "
        "reordered.",
    )
    compression: Compression = Field(
        "auto",
        description="Compress rounds: auto (from 4 KiB on, where a sample shrinks), zstd (all) or "
        "none.",
    )
    max_line: Annotated[ByteSize, Field(ge=1024, le=4 * 1024 * 1024)] = Field(
        ByteSize(1024 * 1024), description="Longest line that is shipped in one piece."
    )
    round_size: Annotated[ByteSize, Field(ge=64 * 1024, le=64 * 1024 * 1024)] = Field(
        ByteSize(7 * 1024 * 1024),
        description="Largest round: bytes of lines in one message. Memory: up to seven times this, "
        "10 MiB, 45 MiB for the program and 5 KiB for each file.",
    )
    grace: Duration = Field(
        timedelta(seconds=5),
        description="How long to wait for the end of a rotated file's last line before it is "
        "shipped unfinished; the next file waits at most twice as long.",
    )
    include_lines: Lines = option(
        (), "REGEX", "Ship only lines, or records with a line, that match; repeatable."
    )
    exclude_lines: Lines = option(
        (), "REGEX", "Drop lines that match, also lines that --include-lines selects; repeatable."
    )
    record_start: Annotated[str, AfterValidator(_record_start)] = option(
        "",
        "REGEX",
        "A line that matches begins a record; the lines up to the next one belong to it.",
    )
    records: Preset | None = Field(
        None, description="Begin records as the logs of this kind do, instead of --record-start."
    )
    record_timeout: Annotated[Duration, Field(gt=timedelta(0))] = Field(
        timedelta(seconds=2),
        description="How long a file must not grow until its last record counts as complete.",
    )
    record_lines: Annotated[int, Field(ge=2, le=100_000)] = option(
        500, "N", "How many lines of a record to wait for; then the record ends."
    )
    listen: OptionalListen = option(
        None,
        "ADDR:PORT",
        "Address for /metrics (Prometheus) and /healthz, e.g. 127.0.0.1:9464 (default: none).",
    )

    @property
    def is_input(self) -> bool:
        """Whether standard input is read, not files."""
        return self.file == ("-",)

    def explain_denial(self, host: str) -> str:
        """Return why the credential may lack rights for a host; empty if its file names that."""
        owner = str(self.from_files.get("host", ""))
        mismatch = f"the credential is for host {owner}, but --host is {host}"
        hint = f"{mismatch}: use the credential of {host}, or --host {owner}"
        return "" if owner in {"", host} else hint

    @property
    def spool_dir(self) -> Path:
        """The folder that standard input is spooled to."""
        if given := self.state_dir or os.environ.get("STATE_DIRECTORY", "").split(":")[0]:
            return Path(given)
        shared = Path("/var/lib/logshipper")
        is_ours = os.access(shared if shared.is_dir() else shared.parent, os.W_OK)
        return shared if is_ours else Path.home() / ".local/state/logship"

    @model_validator(mode="after")
    def _check_records(self) -> Self:
        if self.record_start and self.records:
            raise ValueError("--records and --record-start both say where records begin; give one")
        return self

    @property
    def record_rules(self) -> RecordRules:
        """Which lines are records."""
        start, kind = self.record_start, self.records
        return RecordRules.of(start, kind, self.record_timeout, self.record_lines)

    @property
    def selection(self) -> Selection:
        """Which files are followed, and where reading begins in them."""
        older, is_end = self.ignore_older, self.from_ == "end"
        nanoseconds = None if older is None else int(older.total_seconds() * 1_000_000_000)
        return Selection.of(self.file, self.exclude, from_end=is_end, ignore_older=nanoseconds)


_RELOADABLE = {
    *("file", "exclude", "from_", "ignore_older", "hold_deleted", "grace", "include_lines"),
    *("exclude_lines", "round_size", "compression", "log_level", "log_format", "record_start"),
    *("records", "record_timeout", "record_lines"),
}


def reload(old: ShipperSettings, new: ShipperSettings) -> tuple[ShipperSettings, str]:
    """Return the settings after a reload, and a line about the changes."""
    standard_input = {"file"} if "-" in (*old.file, *new.file) else set()
    return merge_reloaded(old, new, _RELOADABLE - standard_input)
