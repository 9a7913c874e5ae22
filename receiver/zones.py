"""Time zones by their names, as people write them: `UTC`, `Europe/Berlin`, or `local` for that of this machine."""

import os
from datetime import UTC, tzinfo
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones


def zone_name(text: str) -> str:
    """Return the name by which every machine knows a zone; raises ValueError for what is none."""
    name = text
    if text == "local":
        _, _, link = str(Path("/etc/localtime").resolve()).partition("/zoneinfo/")
        name = (
            os.environ.get("TZ", "").removeprefix(":") or link or "UTC"
        )  # as the C library has it
    if name not in available_timezones():
        raise ValueError(
            f"time zone {name!r} is not known; give UTC, local, or a name such as Europe/Berlin"
        )
    return name


@cache
def named_zone(name: str) -> tzinfo:
    """Return a zone of a checked name."""
    return UTC if name == "UTC" else ZoneInfo(name)
