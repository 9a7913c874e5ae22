"""The path template: from the names of a host and a source file to a path below the output folder.

Decides only; touches no file. Whatever the names are, the path stays below the output folder, fits
the limits of file systems, belongs to no other host or file, and is not the name of a closed
segment or of a hidden file.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple

from nats_logship.wire.containers import make_path, name_container
from receiver.storage.rotation import Calendar, Period, make_stem, parse_segment

DEFAULT = "{host}.log"

_NAMES = ("namespace", "pod", "container")
_PLACE = re.compile(rf"\{{(?:host|file|date|{'|'.join(_NAMES)})\}}")
_OF_CONTAINER = re.compile(rf"\{{(?:{'|'.join(_NAMES)})\}}")
_PART = re.compile(
    rf"\{{file\}}|{_OF_CONTAINER.pattern}(?:\.log)?|(?!\.)(?:\{{host\}}|\{{date\}}|[^{{}}%\\])+"
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SHAPES = {
    "{host}": r"(?P<host>[^/]+?)",
    "{file}": r"(?P<file>.+?)",
    "{date}": rf"(?P<date>{_DATE.pattern})",
    **{f"{{{name}}}": "(?!%)[^/]+?" for name in _NAMES},
}
_MARKS = r"(?:\.\.%%[dfz])*"
_PARTITION = re.compile(r"\.\.p[0-9]+$")
_LONGEST = 226  # bytes of a component; ".000001.zst", ".….new" and a mark must fit 255 with it
_LONGEST_PATH = 1024  # bytes of a source file's path, far below PATH_MAX
_MOST_LEVELS = 32  # of a source file's path: each folder costs an inode
_LITERAL = 24  # bytes that a component may have beside a host's name
_RELATIVE, _STANDARD_INPUT, _UNNAMED, _OTHER = "%relative", "%stdin", "%unnamed", "%other"
"""Names that no source file has here: in theirs, two hexadecimal digits follow each "%"."""
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Permissions:
    """Mode and owner of files and folders, whatever the umask; an id of -1 changes no owner."""

    file: int = 0o640
    folder: int = 0o750
    user: int = -1
    group: int = -1


class LivePath(NamedTuple):
    """The parts of a live file's path."""

    host: str = ""  # empty if the path is not of this layout
    mark: str = ""  # of a partition that is not the host's
    day: str = ""
    series: str = ""  # the path with {date}: the same for the files of all days


@dataclass(frozen=True, slots=True)
class Layout:
    """A valid path template.

    `{host}` occurs once, so no two hosts share a file. `{file}` is the path of the source file,
    with its folders. `{date}` is the day, YYYY-MM-DD, on which the broker stored the line.
    `{namespace}`, `{pod}` and `{container}` are in the path of a container's file. A file whose
    path lacks a name that the template has is below `%other`, under its own path.
    """

    template: str = DEFAULT

    def __post_init__(self) -> None:
        """Raise ValueError for a template that is not valid."""
        if not _is_right(self.template):
            raise ValueError(
                f"{self.template!r} is not a valid path below --output, for example {DEFAULT}, "
                "{host}/{date}.log or {host}/{file}: {host} must occur once, {date} at most once, "
                "{file} at most once, as a part of its own after {host}, or there, instead, "
                "{namespace}, {pod} and {container}, each as a part of its own; the path must end "
                "in .log or /{file}; no part may begin with a dot, contain % or a backslash, or "
                f"have more than {_LITERAL} bytes beside {{host}}"
            )

    @property
    def has_file(self) -> bool:
        """Whether source files of a host have files of their own."""
        return "{file}" in _template_of_others(self.template)

    @property
    def has_date(self) -> bool:
        """Whether each day has a file of its own."""
        return "{date}" in self.template

    def source(self, file: str | None) -> str:
        """Return one path for all source files whose lines share a live file.

        Empty if all of a host do. A container's files share one, whichever its id is, and those of
        a pod that is made again.
        """
        if not (file and self.has_file):
            return ""
        return make_path(found) if (found := self._find_container(file)) else file

    def path(self, host: str, source: str, date: str = "", mark: str = "") -> str:
        """Return the path of a live file, relative to the output folder.

        `source` is a value of `source`, empty if the source file is not known. `mark` is added to
        the host's name in a partition that is not the host's; it holds two dots, which no host's
        name does.
        """
        values = {"host": make_stem(host) + mark, "date": date}
        if container := self._find_container(source):
            template = self.template
            values |= {name: _component(value) for name, value in container.items()}
        else:
            template, values["file"] = _template_of_others(self.template), self._file_path(source)
        return _PLACE.sub(lambda found: values[found[0][1:-1]], template)

    def _find_container(self, file: str) -> Mapping[str, str]:
        """Return the names that the template has; empty for a file that lacks one."""
        names = _names_in(self.template)
        found = name_container(file) if names else {}
        return {name: found[name] for name in names} if found.keys() >= {*names} else {}

    def _file_path(self, file: str) -> str:
        path = make_safe_path(file)
        # or the file of a past day would look like a compressed one
        return f"{path}..%%z" if self.has_date and path.endswith((".zst", ".gz")) else path

    def parse(self, live: str) -> LivePath:
        """Return the parts of a live file's path; all but `series` are empty for another layout."""
        templates = (self.template, _template_of_others(self.template))
        found = next(filter(None, (_shape(one).fullmatch(live) for one in templates)), None)
        if found is None:
            return LivePath(series=live)
        marked = _PARTITION.search(found["host"])
        mark = marked.group() if marked else ""
        host = found["host"].removesuffix(mark)
        if not self.has_date:
            return LivePath(host, mark, series=live)
        begin, end = found.span("date")
        return LivePath(host, mark, found["date"], f"{live[:begin]}{{date}}{live[end:]}")


class Days:
    """The days of moments in a time zone; cheap within one day.

    Days never go back: if the broker's clock is set back, the next lines belong to the latest day.
    """

    def __init__(self, zone: tzinfo = UTC, since: int = 0) -> None:
        """Begin with the day of a moment in nanoseconds since the epoch."""
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


def make_safe_path(file: str) -> str:
    """Return a path that is safe below the output folder; each source file has another one.

    An absolute path loses its first slash. Bytes that are not UTF-8, characters that cannot be
    printed, `%`, a leading dot and the dot of a name like a closed segment become `%XX`. A
    component that is too long is cut, and ends with `%%` and a digest. A path that is too long or
    too deep keeps its first folders and its name, with a digest of the whole path.
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
def _names_in(template: str) -> Sequence[str]:
    return [place[1:-1] for place in _OF_CONTAINER.findall(template)]


@lru_cache(16)
def _template_of_others(template: str) -> str:
    """Return the template of files whose paths lack the names of a container."""
    if not _names_in(template):
        return template
    before, *_ = _OF_CONTAINER.split(template)
    is_dated = "{date}" in template and "{date}" not in before
    return f"{before}{_OTHER}/{'{date}/' * is_dated}{{file}}"


@lru_cache(16)
def _shape(template: str) -> "re.Pattern[str]":
    names = []
    for name in template.split("/"):
        words = re.split(r"(\{[a-z]+\})", name)
        names.append("".join(_SHAPES.get(word) or re.escape(word) for word in words) + _MARKS)
    return re.compile("/".join(names))


def _component(name: str) -> str:
    if not name:
        return "%2F"  # two slashes in a row
    safe = "".join(
        plain
        if plain.isprintable() and plain != "%"
        else "".join(f"%{byte:02X}" for byte in plain.encode("utf-8", "surrogateescape"))
        for plain in name
    )
    if safe.startswith("."):
        safe = f"%2E{safe[1:]}"
    if closed := parse_segment(safe):
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
    # or a folder of one host could be where the file of another one belongs
    named = _OF_CONTAINER.findall(template)
    is_apart = not {"{file}", *named} & {*_PLACE.findall(template.partition("{host}")[0])}
    is_apart &= not (named and "{file}" in places)
    fits = all(_PART.fullmatch(part) and _fits(part) for part in parts)
    return is_whole and is_once and is_apart and fits


def _fits(part: str) -> bool:
    literal = _PLACE.sub("", part).removesuffix(".log").encode()
    size = len(literal) + 10 * ("{date}" in part)
    return part.isprintable() and size <= (_LITERAL if "{host}" in part else _LONGEST)
