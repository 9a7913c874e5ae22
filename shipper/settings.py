"""The settings of a shipper: options, variables (LOGSHIPPER_…), keys, defaults and help."""

import os
from collections.abc import Collection, Container, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, model_validator
from pydantic_settings import SettingsConfigDict

from nats_logship.app.address import OptionalListen
from nats_logship.app.configuration import Many, option
from nats_logship.app.service import merge_reloaded
from nats_logship.app.units import Duration, Rate
from nats_logship.client.access_settings import AccessSettings
from nats_logship.wire.expressions import expression_for_some_lines
from nats_logship.wire.records import RecordForm, Records
from shipper.host_name import read_host
from shipper.sources.files.paths import Selection, check_braces, split_globs
from shipper.sources.files.records import Preset, RecordRules
from shipper.sources.inputs import find_inputs, name_pipes
from shipper.sources.journal.rules import EntryRules, Options, PriorityName, number_priority

Compression = Literal["auto", "zstd", "none"]


def _check_globs(value: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in value:
        check_braces(pattern)
    return value


def _expressions(value: object) -> object:
    lines = tuple(value.splitlines()) if isinstance(value, str) else value
    for text in lines if isinstance(lines, tuple | list) else ():
        expression_for_some_lines(str(text))
    return lines


def _record_start(value: str) -> str:
    if value:
        Records.of(RecordForm.START, value)
    return value


def _check_units(value: tuple[str, ...]) -> tuple[str, ...]:
    for path in (one for one in value if "/" in one):
        unit = "-".join(filter(None, path.split("/")))
        raise ValueError(f"{path} is a path; give the name of its unit, such as {unit}.mount")
    return value


Lines = Annotated[tuple[str, ...], BeforeValidator(_expressions)]
"""Regular expressions: a repeatable option, a list in TOML, one per line in the environment."""


Units = Annotated[Many, AfterValidator(_check_units)]
"""Names of units, or globs; journalctl also takes paths of mounts and devices."""

Globs = Annotated[
    tuple[str, ...],
    BeforeValidator(split_globs),
    AfterValidator(_check_globs),
]
"""Globs: a repeatable option, a list in TOML, commas outside braces in the environment."""


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
        "Journal": (
            *("journal", "unit", "exclude_unit", "priority", "journal_directory"),
            "journal_format",
        ),
        "Lines": (
            *("include_lines", "exclude_lines", "max_line", "grace", "record_start", "records"),
            *("record_timeout", "record_lines"),
        ),
        "Publishing": ("host", "ack", "compression", "round_size", "max_rate", "take_over"),
        "Running": ("once", "patience", "listen"),
    }

    file: Annotated[Globs, AfterValidator(name_pipes)] = option(
        (),
        "PATH_OR_GLOB",
        "File to follow, or a glob in quotes, or a named pipe, or - for standard input; "
        "repeatable.",
    )
    journal: bool = Field(
        False, description="Ship the systemd journal, too; a line is an entry, as journalctl shows."
    )
    unit: Units = option(
        (),
        "GLOB",
        "With --journal: ship only entries of units that match; nginx is nginx.service; "
        "repeatable.",
    )
    exclude_unit: Units = option(
        (), "GLOB", "With --journal: leave out entries of units that match; repeatable."
    )
    priority: Annotated[PriorityName, BeforeValidator(str)] | None = option(
        None,
        "PRIORITY",
        "With --journal: ship only entries of this priority or a more urgent one: emerg, alert, "
        "crit, err, warning, notice, info or debug, or their numbers 0 to 7.",
    )
    journal_directory: Path | None = option(
        None,
        "DIR",
        "With --journal: folder of the journal files (default: the journal of this machine).",
    )
    journal_format: Literal["short", "json"] = Field(
        "short",
        description="With --journal: a line is short (time, host, name and message, as "
        "short-iso-precise of journalctl) or json (all fields).",
    )
    exclude: Globs = option(
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
    watch: bool = Field(
        True,
        description="Use inotify to notice changes sooner than by polling, and to open files that "
        "live for a moment.",
    )
    poll_every: Annotated[Duration, Field(gt=timedelta(0))] = Field(
        timedelta(seconds=1),
        description="How often to check every file and folder, besides inotify; less often if a "
        "check takes long.",
    )
    host: Annotated[str, AfterValidator(read_host)] = option(
        "",
        "NAME",
        "Host name that the lines are shipped under; @FILE and '$VARIABLE' say where it is "
        "(default: name of this machine).",
    )
    state_dir: Path | None = option(
        None,
        "DIR",
        "Folder that keeps standard input and pipes until they are acknowledged (default: "
        "$STATE_DIRECTORY, or "
        "/var/lib/logshipper if that is writable, or ~/.local/state/logship).",
    )
    once: bool = Field(
        False,
        description="Ship the lines that exist now, and end when they are acknowledged; with 1 if "
        "a --file matches nothing, after the others are shipped. Of {a,b} one match is enough.",
    )
    take_over: bool = Field(
        False,
        description="Take over from an agent that ships for the same host on this machine: the new "
        "one ships at once, the other ends some seconds later. Without this option the new agent "
        "ends.",
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
        description="Compress rounds that shrink: auto (from 4 KiB on; from 64 KiB on only if a "
        "sample shrinks), zstd (of any size) or none.",
    )
    max_line: Annotated[ByteSize, Field(ge=1024, le=4 * 1024 * 1024)] = Field(
        ByteSize(1024 * 1024), description="Longest line that is shipped in one piece."
    )
    round_size: Annotated[ByteSize, Field(ge=64 * 1024, le=64 * 1024 * 1024)] = Field(
        ByteSize(7 * 1024 * 1024),
        description="Largest round: bytes of lines in one message. Memory: up to seven times this, "
        "10 MiB, 45 MiB for the program and 5 KiB for each file.",
    )
    max_rate: Rate = option(
        0,
        "RATE",
        "Most bytes of lines to send per second, e.g. 5MB/s or 512KiB/s, over all files; after a "
        "silence the bytes of a second go at once; 0 for no limit.",
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

    def explain_denial(self, host: str) -> str:
        """Return why the credential may lack rights for a host; empty if its file names that."""
        owner = str(self.from_files.get("host", ""))
        mismatch = f"the credential is for host {owner}, but --host is {host}"
        hint = f"{mismatch}: use the credential of {host}, or --host {owner}"
        return "" if owner in {"", host} else hint

    @property
    def spool_dir(self) -> Path:
        """The folder that inputs are spooled to."""
        if given := self.state_dir or os.environ.get("STATE_DIRECTORY", "").split(":")[0]:
            return Path(given)
        shared = Path("/var/lib/logshipper")
        is_ours = os.access(shared if shared.is_dir() else shared.parent, os.W_OK)
        return shared if is_ours else Path.home() / ".local/state/logship"

    def select_files(self, inputs: Container[str]) -> Selection:
        """Return which files are followed, and where reading begins in them.

        `inputs` are those of `file` that are standard input and pipes.
        """
        files, is_end = [name for name in self.file if name not in inputs], self.from_ == "end"
        older = self.ignore_older_nanoseconds
        return Selection.of(files, self.exclude, from_end=is_end, ignore_older=older)

    @property
    def ignore_older_nanoseconds(self) -> int | None:
        """The age of what is not read, in nanoseconds."""
        older = self.ignore_older
        return None if older is None else int(older.total_seconds() * 1_000_000_000)

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
    def journal_rules(self) -> EntryRules:
        """Which entries of the journal are shipped."""
        least = number_priority(self.priority) if self.priority else None
        return EntryRules(self.unit, self.exclude_unit, least)

    @property
    def journal_options(self) -> Options:
        """What is read of the journal, and how."""
        folder = str(self.journal_directory.absolute()) if self.journal_directory else ""
        return Options(
            path=f"journal:{folder}" if folder else "journal",
            folder=folder,
            is_json=self.journal_format == "json",
            rules=self.journal_rules,
            from_end=self.from_ == "end",
            ignore_older=self.ignore_older_nanoseconds,
            once=self.once,
        )


_RELOADABLE = {
    *("file", "exclude", "from_", "ignore_older", "hold_deleted", "grace", "include_lines"),
    *("exclude_lines", "round_size", "max_rate", "compression", "log_level", "log_format"),
    *("unit", "exclude_unit", "priority"),
    *("record_start", "records", "record_timeout", "record_lines"),
}


def reload(
    old: ShipperSettings, new: ShipperSettings, inputs: Collection[str], *, follows: bool
) -> tuple[ShipperSettings, str]:
    """Return the settings after a reload, and a line about the changes.

    `inputs` are the standard input and pipes that are read, which stay as they are. An agent that
    `follows` no files at its start follows none after a reload.
    """
    stay = set(inputs) == set(find_inputs(new.file)) | (set(inputs) & set(new.file))
    return merge_reloaded(old, new, _RELOADABLE - (set() if follows and stay else {"file"}))
