"""Names of files: globs, the names that rotation gives, forms of compression, and the selection of files to follow.

Knows names only; never looks into a directory.
"""

import fnmatch
import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

_MAGIC = re.compile(r"[*?[]")
_TOKEN = re.compile(r"\[[!^]?+.[^]]*\]|.", re.DOTALL)


def has_magic(pattern: str) -> bool:
    """Whether a pattern, or a part of one, can stand for more than one name."""
    return _MAGIC.search(pattern) is not None


@lru_cache(maxsize=1024)
def pattern_of(glob: str, *, excludes: bool = False) -> re.Pattern[str]:
    """Return what matches the whole paths, or the whole names, that a glob shows.

    `*` and `?` stay within a name, `**` as a name of its own stands for any number of folders, and a name that begins
    with a dot is shown only by a pattern that begins with one. A glob that excludes matches hidden names, and all beneath.
    """
    visible, beneath = ("", "(?:/.*)?") if excludes else (r"(?!\.)", "")
    parts = glob.split("/")
    if parts[-1] == "**":
        parts.append("*")
    pieces = [""]
    for part in parts:
        if part == "**":
            pieces.append("")
        else:
            pieces[-1] += f"{_name(part, visible)}/"
    found = _starred(pieces, f"(?:{visible}[^/]+/)")
    return re.compile(found.removesuffix("/") + beneath, re.DOTALL)


def _name(part: str, visible: str) -> str:
    pieces = [""]
    for token in _TOKEN.findall(part):
        if token == "*":
            pieces.append("")
        elif len(token) > 1:
            one_of = fnmatch.translate(re.sub(r"^\[\^", "[!", token)).removesuffix(r"\Z")
            pieces[-1] += f"(?!/){one_of}"
        else:
            pieces[-1] += "[^/]" if token == "?" else re.escape(token)
    return (visible if has_magic(part[:1]) else "") + _starred(pieces, "[^/]")


def _starred(pieces: Sequence[str], one: str) -> str:
    """Return the pieces with any number of `one` before each but the first.

    A piece is taken where it comes first, except the last one: the time in which a name is matched
    does not grow with each star.
    """
    first, *rest = pieces
    if not rest:
        return first
    return first + "".join(f"(?>{one}*?{piece})" for piece in rest[:-1]) + f"{one}*{rest[-1]}"


class Packing(Enum):
    """A form of compression that can be read; the value is what names of such files end in."""

    GZIP = ".gz"
    ZSTD = ".zst"
    XZ = ".xz"
    BZIP2 = ".bz2"


_ENDINGS = {packing.value: packing for packing in Packing}
COMPRESSED = (*_ENDINGS, ".lz4", ".Z", ".zip")
"""What names of compressed files end in, be it a form that can be read or not."""
_SUFFIX = re.compile(r"[._-](?:[0-9][0-9TZtz:._-]*|old|prev|bak|save)", re.ASCII)
_INFIX = re.compile(r"(.+?)[._-][0-9][0-9T_.-]{4,}[0-9Z](\.[A-Za-z][\w-]*)", re.ASCII)


def packing_of(name: str) -> Packing | None:
    """Return the form of compression that a name ends in; None for any other name."""
    return _ENDINGS.get(name[name.rfind(".") :])


def decompressed_name(name: str) -> str:
    """Return the name before compression; the name itself where it was not compressed."""
    packing = packing_of(name)
    return name if packing is None else name.removesuffix(packing.value)


def live_names(name: str) -> tuple[str, ...]:
    """Return the names that a file may have had before it was rotated to `name`; empty for most names.

    `app.log.1`, `app.log-20260101`, `app.log.old` come from `app.log`, and so does `app-20260101.log` (logrotate's
    `dateext` with `extension`), but not `app-1.log`: instances of a service are called so. A compressed file had its own
    name without the ending last.
    """
    stem = decompressed_name(name)
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


def group_of(path: str, lives: Collection[str]) -> str:
    """Return the live path that `path` was rotated from, if that is one of `lives`, else `path` itself."""
    folder, _, name = path.rpartition("/")
    before = (f"{folder}/{live}" for live in live_names(name))
    return next((live for live in before if live in lives), path)


@dataclass(frozen=True, slots=True)
class Selection:
    """Patterns of the files to follow and of those to leave out, all absolute.

    `from_end` says that a file which the first scan finds, and which was never seen before, begins at its end.
    `ignore_older` is how long, in nanoseconds, a file may not have been written and still be taken up; None: any time.
    """

    patterns: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    from_end: bool = False
    ignore_older: int | None = None

    @classmethod
    def of(
        cls, patterns: Iterable[str], excluded: Iterable[str] = (), **options: Any
    ) -> "Selection":
        """Return the selection of patterns that may be relative to the working directory."""
        shown, left_out = (tuple(map(os.path.abspath, names)) for names in (patterns, excluded))
        return cls(shown, left_out, **options)

    def shows(self, path: str) -> bool:
        """Whether a pattern shows a file of this path, and none leaves it out."""
        shown = any(glob == path or pattern_of(glob).fullmatch(path) for glob in self.patterns)
        return shown and not self.excludes_file(path)

    def excludes(self, path: str) -> bool:
        """Whether a file or folder of this path is left out, by its own name or by that of a folder above it."""
        return any(pattern_of(glob, excludes=True).fullmatch(path) for glob in self.excluded)

    def excludes_file(self, path: str) -> bool:
        """Whether a file of this path is left out, or was rotated away from one that is."""
        if not self.excluded:
            return False
        folder, _, name = path.rpartition("/")
        return any(self.excludes(f"{folder}/{live}") for live in (name, *live_names(name)))

    def is_too_old(self, modified: int, now: int) -> bool:
        """Whether a file that was never seen is passed over, for the time when it was last written."""
        return self.ignore_older is not None and now - modified > self.ignore_older
