"""Names of files: globs, names given by rotation, forms of compression, and the selection.

Knows names only; never lists a folder.
"""

import fnmatch
import itertools
import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

_MAGIC = re.compile(r"[*?[]")
_MOST_GLOBS, _SHOWN = 1_000, 60  # that one pattern may expand to; characters of it in a message
_TOKEN = re.compile(r"\[[!^]?+.[^]]*\]|.", re.DOTALL)


def has_magic(pattern: str) -> bool:
    """Whether a pattern, or a part of one, can match more than one name."""
    return _MAGIC.search(pattern) is not None


def expand_braces(pattern: str) -> list[str]:
    """Return the globs that a pattern with alternatives expands to, as in a shell: `a{b,c{d,}}`.

    Braces without a comma between them are plain characters, and so are those within brackets.
    Raises ValueError for more than 1,000 globs.
    """
    left, found = [_TOKEN.findall(pattern)], list[str]()
    while left:
        tokens = left.pop()
        braces = _find_braces(tokens)
        least = len(left) + len(found) + 1 + sum(len(one) - 2 for one in braces)
        if least > _MOST_GLOBS:
            shown = pattern if len(pattern) <= _SHOWN else f"{pattern[:_SHOWN]}…"
            raise ValueError(f"{shown} expands to more than {_MOST_GLOBS:,} globs")
        if not braces:
            found.append("".join(tokens))
            continue
        at = min(braces)
        before, after = tokens[: at[0]], tokens[at[-1] + 1 :]
        parts = [tokens[a + 1 : b] for a, b in itertools.pairwise(at)]
        left += [before + part + after for part in reversed(parts)]
    return [*dict.fromkeys(found)]


def split_globs(value: object) -> object:
    """Split a text at its commas outside braces; return anything else as it is."""
    if not isinstance(value, str):
        return value
    parts, depth = [""], 0
    for letter in value:
        depth += (letter == "{") - (letter == "}" and depth > 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple(part.strip() for part in parts)


def check_braces(pattern: str) -> None:
    """Raise ValueError for too many globs, or a lone brace, but in a path that exists."""
    expand_braces(pattern)
    depth = 0
    for token in _TOKEN.findall(pattern):
        depth += (token == "{") - (token == "}")
        if depth < 0:
            break
    if depth and not os.path.lexists(pattern):
        lone, missing = "{}" if depth > 0 else "}{"
        raise ValueError(f"{pattern} has {lone} without {missing}; [{lone}] is the brace itself")


def _find_braces(tokens: Sequence[str]) -> list[list[int]]:
    """Return the positions of each brace with commas, of these and of its end."""
    open_, found = list[list[int]](), list[list[int]]()
    for at, token in enumerate(tokens):
        if token == "{":
            open_.append([at])
        elif open_ and token in ",}":
            open_[-1].append(at)
            found += [open_.pop()] if token == "}" else []
    return [one for one in found if len(one) > 2]


def fixed_part(pattern: str) -> str:
    """Return the longest path without magic that an absolute pattern begins with."""
    parts = pattern.split("/")
    fixed = next((n for n, part in enumerate(parts) if has_magic(part)), len(parts))
    return "/".join(parts[:fixed]) or "/"


@lru_cache(maxsize=1024)
def pattern_of(glob: str, *, excludes: bool = False) -> re.Pattern[str]:
    """Return the expression for the whole paths, or the whole names, that a glob matches.

    `*` and `?` match within a name, `**` as a name of its own matches any number of folders, and a
    name that begins with a dot is matched only by a pattern that begins with one. A glob that
    excludes matches hidden names too, and everything beneath.
    """
    found = (_expression(one, excludes) for one in expand_braces(glob))
    return re.compile("|".join(f"(?:{one})" for one in found), re.DOTALL)


def _expression(glob: str, excludes: bool) -> str:
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
    return found.removesuffix("/") + beneath


def _name(part: str, visible: str) -> str:
    pieces = [""]
    for token in _TOKEN.findall(part):
        if token == "*":
            pieces.append("")
        elif len(token) > 1:
            one_of = fnmatch.translate(re.sub(r"^\[\^", "[!", token))
            pieces[-1] += "(?!/)" + re.sub(r"\\[zZ]$", "", one_of)  # \z since Python 3.14
        else:
            pieces[-1] += "[^/]" if token == "?" else re.escape(token)
    return (visible if has_magic(part[:1]) else "") + _starred(pieces, "[^/]")


def _starred(pieces: Sequence[str], one: str) -> str:
    """Return the pieces with any number of `one` before each but the first.

    Each piece but the last matches at its first place: the time for a name does not grow with each
    star.
    """
    first, *rest = pieces
    if not rest:
        return first
    return first + "".join(f"(?>{one}*?{piece})" for piece in rest[:-1]) + f"{one}*{rest[-1]}"


class Compression(Enum):
    """A form of compression that can be read; the value is what names of such files end in."""

    GZIP = ".gz"
    ZSTD = ".zst"
    XZ = ".xz"
    BZIP2 = ".bz2"


_ENDINGS = {compression.value: compression for compression in Compression}
COMPRESSED = (*_ENDINGS, ".lz4", ".Z", ".zip")
"""Endings of names of compressed files, whether or not they can be read."""
_UNREADABLE = tuple(ending for ending in COMPRESSED if ending not in _ENDINGS)
_SUFFIX = re.compile(r"[._-](?:[0-9][0-9TZtz:._-]*|old|prev|bak|save)", re.ASCII)
_EXTENSION = r"(\.[A-Za-z][\w-]*)"
_INFIX = re.compile(
    rf"(.+?)(?:[._-][0-9][0-9T_.-]{{4,}}[0-9Z]|\.[0-9]{{1,4}}){_EXTENSION}", re.ASCII
)
_MULTILOG = re.compile(r"(@[0-9a-f]{24})\.[su]", re.ASCII)
"""The name that svlogd and multilog give the file that was `current`: its time in TAI64N."""
_NUMBER = re.compile(rf"(.*?)[._-]([0-9]{{1,5}}){_EXTENSION}?", re.ASCII | re.DOTALL)
_TIME = re.compile(
    rf"(?:(.*?)[._-])?([0-9][0-9TZtz:._-]{{4,}}[0-9Zz]){_EXTENSION}?", re.ASCII | re.DOTALL
)


def compression_of(name: str) -> Compression | None:
    """Return the form of compression that a name ends in; None for any other name."""
    return _ENDINGS.get(name[name.rfind(".") :])


def decompressed_name(name: str) -> str:
    """Return the name before compression; the name itself if it is not one of a compressed file."""
    compression = compression_of(name)
    return name if compression is None else name.removesuffix(compression.value)


@lru_cache(maxsize=16_384)  # a scan asks for the same names as the one before
def live_names(name: str) -> tuple[str, ...]:
    """Return the names that a file may have had before it was rotated to `name`; mostly none.

    `app.log.1`, `app.log-20260101` and `app.log.old` come from `app.log`. So do `app.1.log` and
    `app-20260101.log` (logrotate's `extension`), but not `app-1.log`: instances of a service have
    such names. `@4000….s` comes from `current` (svlogd, multilog). The last name of a compressed
    file is its own without the ending.
    """
    stem = decompressed_name(name)
    if stem == name and name.endswith(_UNREADABLE):
        stem = name[: name.rfind(".")]
    if stem != name:
        return *live_names(stem), stem
    if _MULTILOG.fullmatch(name):
        return ("current",)
    found = [
        name[: separator.start()]
        for separator in re.finditer(r"[._-]", name)
        if separator.start() > 0 and _SUFFIX.fullmatch(name, separator.start())
    ]
    if infix := _INFIX.fullmatch(name):
        found.append(infix[1] + infix[2])
    return tuple(found)


@lru_cache(maxsize=4096)  # each file of a group is compared with many others
def rotation_key(path: str) -> tuple[str, tuple[int, ...]] | None:
    """Return a name without its number or time, and a key by which such names are sorted.

    A name with a greater key was rotated later: a higher number of up to five digits is older, a
    later time is newer. None if the name has neither.
    """
    name = decompressed_name(path.rpartition("/")[2])
    if found := _MULTILOG.fullmatch(name):
        return "current", (int(found[1][1:], 16),)
    if found := _TIME.fullmatch(name):
        digits = map(int, re.findall("[0-9]+", found[2]))
        return f"{found[1] or ''}@{found[3] or ''}", tuple(digits)
    if found := _NUMBER.fullmatch(name):
        return f"{found[1]}#{found[3] or ''}", (-int(found[2]),)
    return None


def group_of(path: str, live_paths: Collection[str]) -> str:
    """Return the live path that `path` was rotated from if it is in `live_paths`, else `path`."""
    folder, _, name = path.rpartition("/")
    before = (f"{folder}/{live}" for live in live_names(name))
    return next((live for live in before if live in live_paths), path)


def live_path_of(archive: str) -> str:
    """Return the live path that an archive was rotated from, by its name alone."""
    folder, _, name = archive.rpartition("/")
    return f"{folder}/{live_names(name)[0]}"


def _absolute(pattern: str) -> list[str]:
    # `{/var/log,/tmp}/a.log` is absolute, though it does not begin with a slash
    found = expand_braces(pattern)
    if pattern.startswith("/") or not any(one.startswith("/") for one in found):
        found = [pattern]
    return list(map(os.path.abspath, found))


@dataclass(frozen=True, slots=True)
class Selection:
    """Patterns of the files to follow and of those to leave out, all absolute.

    `from_end`: reading of unknown files that the first scan finds begins at their end.
    `ignore_older`: nanoseconds since the last write after which an unknown file is not followed;
    None for any time.
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
        shown, left_out = (
            tuple(one for name in names for one in _absolute(name))
            for names in (patterns, excluded)
        )
        return cls(shown, left_out, **options)

    def shows(self, path: str) -> bool:
        """Whether a pattern matches this path, and none excludes it."""
        shown = any(glob == path or pattern_of(glob).fullmatch(path) for glob in self.patterns)
        return shown and not self.excludes_file(path)

    def excludes(self, path: str) -> bool:
        """Whether a file or folder is excluded, by its own path or by that of a folder above it."""
        return any(
            glob == path or pattern_of(glob, excludes=True).fullmatch(path)
            for glob in self.excluded
        )

    def excludes_file(self, path: str) -> bool:
        """Whether a file is excluded, or was rotated from one that is."""
        if not self.excluded:
            return False
        folder, _, name = path.rpartition("/")
        return any(self.excludes(f"{folder}/{live}") for live in (name, *live_names(name)))

    def is_too_old(self, modified: int, now: int) -> bool:
        """Whether an unknown file is not followed, since it was last written too long ago."""
        return self.ignore_older is not None and now - modified > self.ignore_older
