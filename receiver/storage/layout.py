"""Where a line goes below the output folder: the path template, and what any host and file name become in it.

Decides; never touches a file. Whatever a host or a file is called, its path stays below the output folder, fits a file
system, is no other's, and can be neither a closed segment nor a hidden file of ours.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple

from receiver.storage.rotation import Calendar, Period, parse_closed, stem_of

DEFAULT = "{host}.log"

_PLACE = re.compile(r"\{(?:host|file|date)\}")
_PART = re.compile(r"\{file\}|(?!\.)(?:\{host\}|\{date\}|[^{}%\\])+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SHAPES = {
    "{host}": r"(?P<host>[^/]+?)",
    "{file}": r"(?P<file>.+?)",
    "{date}": rf"(?P<date>{_DATE.pattern})",
}
_MARKS = r"(?:\.\.%%[dfz])*"
_PARTITION = re.compile(r"\.\.p[0-9]+$")
_LONGEST = 226  # bytes of a component; ".000001.zst" fits behind, ".….new" around it, and a mark of ours within
_LONGEST_PATH = 1024  # bytes of a file's path; with the rest far below PATH_MAX
_MOST_LEVELS = 32  # of a source file's path: each folder of it costs an inode
_LITERAL = 24  # bytes that a component may have beside a host's name
_RELATIVE, _STANDARD_INPUT, _UNNAMED = "%relative", "%stdin", "%unnamed"
"""With "%" and no hex: no name escapes to these."""
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Permissions:
    """Modes of files and folders whatever the umask, and the ids of user and group they are given to; -1 leaves them as they come."""

    file: int = 0o640
    folder: int = 0o750
    user: int = -1
    group: int = -1


class LivePath(NamedTuple):
    """What the path of a live file tells. `host` is empty where it is of another layout.

    `mark` is that of a partition which is not the host's, empty for none; `day` is empty where the layout has no days;
    `series` is what the files of all days have in common.
    """

    host: str = ""
    mark: str = ""
    day: str = ""
    series: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """A path template that was found to be right.

    `{host}` is there once, so that no two hosts share a file; `{file}` is the source file's path, as folders;
    `{date}` is the day, YYYY-MM-DD, on which the broker stored the line.
    """

    template: str = DEFAULT

    def __post_init__(self) -> None:
        """Raise ValueError with what to write instead."""
        if not _is_right(self.template):
            raise ValueError(
                f"{self.template!r} is no path below --output that holds {{host}} once, at most "
                f"one {{date}}, behind {{host}} at most one part {{file}} of its own, ends in .log "
                "or /{file}, and has no part that begins with a dot, holds % or a backslash, or is "
                f"longer than {_LITERAL} bytes beside {{host}}; write {DEFAULT}, "
                "{host}/{date}.log or {host}/{file}"
            )

    @property
    def has_file(self) -> bool:
        """Whether lines of several files of a host are kept apart."""
        return "{file}" in self.template

    @property
    def has_date(self) -> bool:
        """Whether there is a file a day, so that yesterday's gets no more lines."""
        return "{date}" in self.template

    def path(self, host: str, file: str | None, date: str = "", mark: str = "") -> str:
        """Return the live file's path relative to the output folder.

        `file` is None where nobody says which; `mark` follows the host's name where another partition writes the file
        of that name, and holds two dots, which no host's own name does.
        """
        parts = self.template.replace("{date}", date).split("/")
        return "/".join(
            self._file_path(file)
            if part == "{file}"
            else part.replace("{host}", stem_of(host) + mark)
            for part in parts
        )

    def _file_path(self, file: str | None) -> str:
        path = safe_path(file)
        # a day's file that is over may be compressed under its own name
        return f"{path}..%%z" if self.has_date and path.endswith((".zst", ".gz")) else path

    def parse(self, live: str) -> LivePath:
        """Return what the path of a live file tells, which is nothing for one of another layout."""
        if (found := _shape(self.template).fullmatch(live)) is None:
            return LivePath(series=live)
        marked = _PARTITION.search(found["host"])
        mark = marked.group() if marked else ""
        host = found["host"].removesuffix(mark)
        if not self.has_date:
            return LivePath(host, mark, series=live)
        begin, end = found.span("date")
        return LivePath(host, mark, found["date"], f"{live[:begin]}{{date}}{live[end:]}")


class Days:
    """The date of moments in a time zone; as cheap as a comparison within a day.

    A day that is over stays over: were the broker's clock set back, what comes then would be of the last day still.
    """

    def __init__(self, zone: tzinfo = UTC, since: int = 0) -> None:
        """Begin at a moment in nanoseconds since the epoch."""
        self._zone = zone
        self.latest = since
        self._calendar = Calendar(_DAY, zone)
        self._last = Period(0, 0)
        self._date = ""

    def date(self, moment: int) -> str:
        """Return the day of a moment in nanoseconds since the epoch, as YYYY-MM-DD."""
        self.latest = moment = max(moment, self.latest)
        if not self._last.begin <= moment < self._last.end:
            self._last = self._calendar.period(moment)
            begin = datetime.fromtimestamp(self._last.begin // 10**9, self._zone)
            self._date = begin.strftime("%Y-%m-%d")
        return self._date


def safe_path(file: str | None) -> str:
    """Return a source file's path as folders and a name: injective, and within what file systems hold.

    Bytes that are no UTF-8, what cannot be printed, `%`, a leading dot and what would look like a closed segment are written
    as `%XX`; what is too long is cut, with `%%` and a digest behind. Of a path that is too long or too deep the first
    folders stay, and the file's name with a digest of the whole path. An absolute path loses its first slash.
    """
    if not file:
        return _UNNAMED
    if file == "-":
        return _STANDARD_INPUT
    first = [] if file.startswith("/") else [_RELATIVE]
    parts = [*first, *map(_component, file.removeprefix("/").split("/"))]
    if len(parts) <= _MOST_LEVELS and _size(parts) <= _LONGEST_PATH:
        return "/".join(parts)
    name = f"{_cut(parts[-1], 64)}%%{_digest(file)}"
    folders = parts[: _MOST_LEVELS - 1]
    while _size([*folders, name]) > _LONGEST_PATH:
        folders.pop()
    return "/".join([*folders, name])


def _size(parts: Sequence[str]) -> int:
    return len("/".join(parts).encode())


@lru_cache(16)
def _shape(template: str) -> "re.Pattern[str]":
    names = []
    for name in template.split("/"):
        words = re.split(r"(\{[a-z]+\})", name)
        names.append("".join(_SHAPES.get(word) or re.escape(word) for word in words) + _MARKS)
    return re.compile("/".join(names))


def _component(name: str) -> str:
    if not name:
        return "%2F"  # of two slashes in a row; a slash is never within a name
    safe = "".join(
        plain
        if plain.isprintable() and plain != "%"
        else "".join(f"%{byte:02X}" for byte in plain.encode("utf-8", "surrogateescape"))
        for plain in name
    )
    if safe.startswith("."):
        safe = f"%2E{safe[1:]}"
    if closed := parse_closed(safe):
        live = closed[0]
        safe = f"{live}%2E{safe[len(live) + 1 :]}"
    if len(safe.encode()) <= _LONGEST:
        return safe
    return f"{_cut(safe, _LONGEST - 34)}%%{_digest(name)}"


def _cut(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")


def _digest(text: str) -> str:
    raw = text.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


def _is_right(template: str) -> bool:
    parts, places = template.split("/"), _PLACE.findall(template)
    is_whole = parts[-1] == "{file}" or parts[-1].endswith(".log")
    is_once = "{host}" in places and len(set(places)) == len(places)
    # else a host could have a folder where the file of another one belongs
    is_apart = "{file}" not in template.partition("{host}")[0]
    fits = all(_PART.fullmatch(part) and _fits(part) for part in parts)
    return is_whole and is_once and is_apart and fits


def _fits(part: str) -> bool:
    literal = _PLACE.sub("", part).removesuffix(".log").encode()
    size = len(literal) + 10 * ("{date}" in part)
    return part.isprintable() and size <= (_LITERAL if "{host}" in part else _LONGEST)
