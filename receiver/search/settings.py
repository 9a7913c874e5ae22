"""The settings of `logreceiver search`."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import click
from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt
from pydantic_settings import SettingsConfigDict

from nats_logship.app.command_line import parse_range_options
from nats_logship.app.configuration import Many, option
from nats_logship.app.timestamps import EARLIEST
from nats_logship.client.access_settings import AccessSettings
from nats_logship.client.line_match import LineMatch
from receiver.settings import MODELS, TimeZone, require_whole
from receiver.spark.settings import split_lines
from receiver.storage.rotation import load_zone
from receiver.table.settings import check_options


def _check_expression(text: str) -> str:
    if text:
        LineMatch(text)
    return text


class SearchSettings(AccessSettings):
    """The settings of `logreceiver search`."""

    model_config = SettingsConfigDict(env_prefix="LOGRECEIVER_")
    program: ClassVar[str] = "logreceiver"
    models = MODELS
    credential_kinds = ("receiver", "admin", "monitor")
    sections: ClassVar[Mapping[str, Collection[str]]] = {
        "Lines": (
            *("host", "file", "since", "until", "time_zone"),
            *("match", "level", "context", "limit"),
        ),
        "Where to search": ("table", "storage_option", "output", "state_dir", "stream"),
    }

    host: Many = option((), "GLOB", "Only hosts that match; may be given several times.")
    file: Many = option(
        (),
        "GLOB",
        "Only source files whose path matches, or whose name matches if the glob has no slash; may "
        "be given several times.",
    )
    since: str = option(
        "",
        "WHEN",
        "Only lines that the broker stored then or later: a time such as 2026-11-20T14:03 (in "
        "--time-zone, or with its own zone), today, yesterday, or a time ago such as 2h. Received "
        "files do not say when a line was stored: there the time in the line counts, or that of "
        "the line before; lines before the first time are shown.",
    )
    until: str = option(
        "",
        "WHEN",
        "Only lines that the broker stored before, given like --since; 14:05 is the first after "
        "--since.",
    )
    match: Annotated[str, AfterValidator(_check_expression)] = option(
        "", "REGEX", "Only lines that match this expression of RE2."
    )
    level: Literal["trace", "debug", "info", "warning", "error", "critical"] | None = Field(
        None, description="Only lines of this level, or of a higher one."
    )
    context: Annotated[int, Field(ge=0)] = option(
        0, "N", "Also show N lines of the same host and file before and after each line."
    )
    limit: PositiveInt | None = option(
        None, "N", "Show only N lines: with --since the first ones, otherwise the last ones."
    )
    table: str = option("", "DIR|URL", "Search this table of `logreceiver table`.")
    storage_option: Annotated[
        tuple[str, ...], BeforeValidator(split_lines), AfterValidator(check_options)
    ] = option((), "NAME=VALUE", "An option for the object store, as of `logreceiver table`.")
    output: Path | None = option(
        None, "DIR", "Search these files of a receiver, if there is no table."
    )
    state_dir: Path | None = option(
        None, "DIR", "Folder of the stores of these files. Default: .logreceiver in --output."
    )
    stream: bool = Field(
        True, description="Search the stream, too: all of it, or what is newer than the rest."
    )
    time_zone: TimeZone | None = option(
        None,
        "ZONE",
        "Time zone of --since and --until (default: UTC), and of times in received files that name "
        "none: without it these may be of any zone, so lines of up to 14 hours more are shown.",
    )

    def require_credential(self, *kinds: str) -> None:
        """See `ProgramSettings`; a receiver's has to be of all partitions."""
        super().require_credential(*kinds)
        require_whole(self._files, "logreceiver search")

    @property
    def zone(self) -> tzinfo | None:
        """The time zone that was given."""
        return load_zone(self.time_zone) if self.time_zone else None

    def parse_times(self) -> tuple[datetime | None, datetime | None]:
        """Return the bounds of the time, None for no bound; raises click.UsageError."""
        since, until = parse_range_options(self.since, self.until, self.zone or UTC)
        since = None if since == EARLIEST else since
        if isinstance(since, int):
            raise click.UsageError(f"--since: {self.since!r} is a sequence: give a time")
        if isinstance(until, int):
            raise click.UsageError(f"--until: {self.until!r} is a sequence: give a time")
        return since, until
