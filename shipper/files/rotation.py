"""The names that rotation gives to files, and their age. Knows names only; never looks into a folder."""

import re

from shipper.files.packing import unpacked

__all__ = ["age", "is_compressed", "live_names"]

_SUFFIX = re.compile(r"[._-](?:[0-9][0-9TZtz:._-]*|old|prev|bak|save)", re.ASCII)
_INFIX = re.compile(r"(.+?)[._-][0-9][0-9T_.-]{4,}[0-9Z](\.[A-Za-z][\w-]*)", re.ASCII)
_NUMBER = re.compile(r".*[^0-9]([0-9]{1,4})", re.ASCII | re.DOTALL)
_COMPRESSED = (".gz", ".zst", ".xz", ".bz2", ".lz4", ".Z", ".zip")


def live_names(name: str) -> tuple[str, ...]:
    """Return the names that a file may have had before it was rotated to `name`; empty for most names.

    `app.log.1`, `app.log-20260101`, `app.log.old` come from `app.log`, and so does `app-20260101.log` (logrotate's
    `dateext` with `extension`). A short number before the extension (`app-1.log`) is not taken for a rotation, since
    instances of a service are called so. A compressed file had the names that it had before, and its own without the
    ending last.
    """
    stem = unpacked(name)
    if stem != name:
        return *live_names(stem), stem
    found = [
        name[: separator.start()]
        for separator in re.finditer(r"[._-]", name)
        if separator.start() > 0 and _SUFFIX.fullmatch(name, separator.start())
    ]
    if infix := _INFIX.fullmatch(name):
        found.append(infix[1] + infix[2])
    return tuple(found)


def is_compressed(name: str) -> bool:
    """Whether the name says that the file was compressed."""
    return name.endswith(_COMPRESSED)


def age(modified: int, name: str) -> tuple[int, int, str]:
    """Return what rotated files are sorted by, oldest first: last write, then the number (a higher one is older)."""
    number = _NUMBER.fullmatch(unpacked(name))
    return modified, -int(number[1]) if number else 0, name
