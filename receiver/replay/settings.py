"""What `logreceiver replay` can be told beyond what a receiver can: which lines, how fast, and where to."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field
from pydantic_settings import SettingsConfigDict

from broker.app.configuration import Many
from broker.app.durations import Duration
from broker.client.access_settings import ACCESS
from receiver.settings import ReceiverSettings, split_partitions

__all__ = ["REPLAY_FIELDS", "ReplaySettings", "StreamSettings", "read_speed"]

REPLAY_FIELDS = ACCESS | {
    *("since", "until", "host", "file", "partition", "speed", "prefix", "output"),
    *("rotate_size", "rotate_every", "time_zone", "compress", "path_template"),
    *("server", "log_level", "log_format"),
}


_TIMES = re.compile(r"([0-9]+(?:\.[0-9]+)?)x")


def read_speed(text: str) -> float:
    """Return how many times faster than it was: 0 for as fast as it goes. Raises ValueError."""
    word = text.strip().lower().replace("\N{MULTIPLICATION SIGN}", "x")
    if word in {"instant", "original"}:
        return 0.0 if word == "instant" else 1.0
    found = _TIMES.fullmatch(word)
    if found is None or not float(found[1]):
        raise ValueError(f"{text!r} is no speed: give instant, original, or a factor such as 10x")
    return float(found[1])


def _checked_speed(text: str) -> str:
    read_speed(text)
    return text


class StreamSettings(ReceiverSettings):
    """The settings of commands that read the streams again: of which partitions and hosts."""

    host: Many = Field(
        (),
        description="Only hosts that match; may be given several times.",
        json_schema_extra={"metavar": "GLOB"},
    )
    partition: Annotated[tuple[str, ...], BeforeValidator(split_partitions)] = Field(
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
    speed: Annotated[str, AfterValidator(_checked_speed)] = Field(
        "instant",
        description="How fast: instant, original (as lines were stored), or a factor such as 10x.",
        json_schema_extra={"metavar": "instant|original|Nx"},
    )
    prefix: bool = Field(
        False, description="With --output -: begin every line with its host and file."
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
