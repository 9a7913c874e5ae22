"""Time zones by their names, as people write them: `UTC`, `Europe/Berlin`, or `local` for that of this machine."""

import os
from datetime import UTC, tzinfo
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

__all__ = ["named_zone", "zone_name"]

_LOCALTIME = Path("/etc/localtime")  # a link into the zones, or a copy of one
_TIMEZONE = Path("/etc/timezone")  # its name, on Debian


def zone_name(text: str) -> str:
    """Return the name by which every machine knows a zone; raises ValueError for what is none."""
    if text == "local":
        return _checked(_local(), "the zone of this machine")
    return _checked(text, "the time zone")


@cache
def named_zone(name: str) -> tzinfo:
    """Return a zone of a checked name."""
    return UTC if name == "UTC" else ZoneInfo(name)


def _local() -> str:
    if name := os.environ.get("TZ", "").removeprefix(":"):
        return name
    _, found, name = str(_LOCALTIME.resolve()).partition("/zoneinfo/")
    if found:
        return name
    try:
        return _TIMEZONE.read_text("utf-8").strip()
    except FileNotFoundError:
        return "UTC"  # as the C library has it


def _checked(name: str, what: str) -> str:
    if name in available_timezones():
        return name
    raise ValueError(
        f"{what} {name!r} is not known; give UTC, local, or a name such as Europe/Berlin"
    )
