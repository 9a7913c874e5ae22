"""What a shipper can be told; options, variables (LOGSHIPPER_…), keys, defaults and help all come from here."""

import os
import re
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field
from pydantic_settings import SettingsConfigDict

from broker.app.address import OptionalListen
from broker.app.configuration import Many
from broker.app.service import Reload, differences
from broker.app.units import Duration
from broker.client.access_settings import AccessSettings, Servers
from broker.wire.subjects import validate_host
from shipper.tail.paths import Selection

__all__ = ["Compression", "ShipperSettings", "default_state_dir", "expression", "reload"]

Compression = Literal["auto", "zstd", "none"]


def _host(value: str) -> str:
    return validate_host(value) if value else value


def _alone(value: tuple[str, ...]) -> tuple[str, ...]:
    if "-" in value and len(value) > 1:
        raise ValueError("- (standard input) cannot be combined with files; run a second shipper")
    return value


def expression(text: str) -> re.Pattern[bytes]:
    """Compile a regular expression over bytes; raises ValueError that names it.

    Its author answers for what it costs, catastrophic backtracking included.
    """
    try:
        return re.compile(text.encode("utf-8", "surrogateescape"))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None


def _expressions(value: object) -> object:
    lines = tuple(value.splitlines()) if isinstance(value, str) else value
    for text in lines if isinstance(lines, tuple | list) else ():
        expression(str(text))
    return lines


Lines = Annotated[tuple[str, ...], BeforeValidator(_expressions)]
"""Regular expressions: an option given several times, a list in TOML, one per line in the environment."""


def _option(default: object, description: str, metavar: str = "TEXT") -> Any:
    return Field(default, description=description, json_schema_extra={"metavar": metavar})


class ShipperSettings(AccessSettings):
    """The settings of `logshipper`."""

    model_config = SettingsConfigDict(env_prefix="LOGSHIPPER_")
    program = "logshipper"

    sections: ClassVar[Mapping[str, Collection[str]]] = {
        "Files": (
            *("file", "exclude", "from_", "ignore_older", "hold_deleted", "watch", "poll_every"),
            "state_dir",
        ),
        "Lines": ("include_lines", "exclude_lines", "max_line", "grace"),
        "Publishing": ("host", "ack", "compression", "round_size", "take_over"),
        "Running": ("once", "patience", "listen"),
        "Connection": ("server",),
    }

    file: Annotated[Many, AfterValidator(_alone)] = _option(
        (),
        "File to follow, or a glob in quotes; may be given several times. - is standard input.",
        "PATH_OR_GLOB",
    )
    exclude: Many = _option(
        (), "File or folder to leave out, or a glob of them; may be given several times.", "GLOB"
    )
    from_: Literal["beginning", "end"] = _option(
        "beginning",
        "Where to begin in files that are there at the start and were never seen: beginning or end.",
        "PLACE",
    )
    ignore_older: Duration | None = _option(
        None,
        "Pass over files that were never seen and were not written for this long, until they are.",
        "DURATION",
    )
    hold_deleted: Duration = _option(
        timedelta(hours=6),
        "How long a deleted file that is not read to its end is kept open, and its space taken.",
        "DURATION",
    )
    watch: bool = _option(True, "Notice changes sooner by inotify; without, only poll.")
    poll_every: Annotated[Duration, Field(gt=timedelta(0))] = _option(
        timedelta(seconds=1),
        "How often to look at every file and folder, besides inotify; more rarely when that takes long.",
    )
    server: Servers = _option(
        ("nats://127.0.0.1:4222",), "Address of the broker; may be given several times.", "URL"
    )
    host: Annotated[str, AfterValidator(_host)] = _option(
        "", "Name that the lines are shipped under; by default the name of this machine.", "NAME"
    )
    state_dir: Path | None = _option(
        None,
        "Folder where standard input is kept until it is acknowledged; by default $STATE_DIRECTORY, "
        "/var/lib/logshipper where that can be written, else ~/.local/state/logship.",
        "DIR",
    )
    once: bool = _option(False, "Ship what is there, and end when it is acknowledged.")
    take_over: bool = _option(
        False,
        "Take over from an agent of the same host on this machine, which ends then; without, this one does.",
    )
    patience: Duration = _option(
        timedelta(seconds=15), "With --once: how long to wait for the broker."
    )
    ack: bool = _option(
        True, "Wait for acknowledgements; without them lines may be lost, repeated or reordered."
    )
    compression: Compression = _option(
        "auto", "Compression of rounds: auto (from 4 KiB on), zstd or none."
    )
    max_line: Annotated[ByteSize, Field(ge=1024, le=4 * 1024 * 1024)] = _option(
        ByteSize(1024 * 1024), "Longest line in bytes that is shipped in one piece.", "BYTES"
    )
    round_size: Annotated[ByteSize, Field(ge=64 * 1024, le=64 * 1024 * 1024)] = _option(
        ByteSize(7 * 1024 * 1024),
        "Most bytes of lines that are published at a time. Lines on their way take up to seven times as much memory, "
        "and 10 MiB, beside the program itself (some 45 MiB, and 5 KiB for each file).",
        "BYTES",
    )
    grace: Duration = _option(
        timedelta(seconds=5),
        "How long a rotated file's last line may stay unfinished before it is shipped.",
    )
    include_lines: Lines = _option(
        (),
        "Regular expression: ship only lines that it is found in; may be given several times.",
        "REGEX",
    )
    exclude_lines: Lines = _option(
        (),
        "Regular expression: leave out lines that it is found in, after --include-lines; may be given several times.",
        "REGEX",
    )
    listen: OptionalListen = _option(
        None,
        "Address for /metrics (Prometheus) and /healthz, e.g. 127.0.0.1:9464; none by default.",
        "ADDR:PORT",
    )

    @property
    def selection(self) -> Selection:
        """Which files are followed, and where in them reading begins."""
        older, is_end = self.ignore_older, self.from_ == "end"
        nanoseconds = None if older is None else int(older.total_seconds() * 1_000_000_000)
        return Selection.of(self.file, self.exclude, from_end=is_end, ignore_older=nanoseconds)


def default_state_dir(environment: Mapping[str, str], home: Path) -> Path:
    """Return the folder of what standard input is spooled to when none is given; systemd's STATE_DIRECTORY wins."""
    if given := environment.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    shared = Path("/var/lib/logshipper")
    is_ours = os.access(shared if shared.is_dir() else shared.parent, os.W_OK)
    return shared if is_ours else home / ".local/state/logship"


_FILES_AT_ONCE = {"file", "exclude", "from_", "ignore_older", "hold_deleted", "grace"}
_AT_ONCE = {
    "include_lines",
    "exclude_lines",
    "round_size",
    "compression",
    "log_level",
    "log_format",
}


def reload(old: ShipperSettings, new: ShipperSettings) -> Reload[ShipperSettings]:
    """Return what to do about settings that were read again."""
    standard_input = {"file"} if "-" in (*old.file, *new.file) else set()
    return differences(old, new, (_FILES_AT_ONCE | _AT_ONCE) - standard_input)
