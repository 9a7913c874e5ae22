"""The received files as they lie in the output folder: by live file the last line, the bytes, the segments. Reads only."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from receiver.writing.folders import walk
from receiver.writing.gaps import DamagedGaps, missing
from receiver.writing.rotation import is_closed, live_of

__all__ = ["HostFile", "HostGaps", "files_in", "gaps_in"]


@dataclass(frozen=True, slots=True)
class HostFile:
    """A live file by its path below the output folder, with its closed segments.

    `last_line` is when its last line was stored (RFC 3339), empty when there is none; `size` is in bytes on the disk, of
    all its files, `segments` how many of them are closed.
    """

    path: str
    last_line: str
    size: int
    segments: int


@dataclass(frozen=True, slots=True)
class HostGaps:
    """What never came of a host's files; `size` is in bytes of those files."""

    host: str
    gaps: int
    size: int


@dataclass(slots=True)
class _Sum:
    moment: float = 0.0
    size: int = 0
    segments: int = 0


def files_in(output: Path) -> list[HostFile]:
    """Return the files of all hosts, by path; none where the folder cannot be read."""
    sums: dict[str, _Sum] = {}
    try:
        for path in walk(output):
            _add(sums, output, path)
    except OSError:
        return []
    return [
        HostFile(path, _rfc3339(found.moment), found.size, found.segments)
        for path, found in sorted(sums.items())
    ]


def _add(sums: dict[str, _Sum], output: Path, path: str) -> None:
    try:
        found = (output / path).lstat()
    except FileNotFoundError:
        return  # that's fine: closed, compressed or removed meanwhile
    folder, slash, name = path.rpartition("/")
    of_host = sums.setdefault(f"{folder}{slash}{live_of(name)}", _Sum())
    of_host.size += found.st_size
    of_host.segments += is_closed(name)
    if found.st_size:
        of_host.moment = max(of_host.moment, found.st_mtime)


def gaps_in(state: Path) -> list[HostGaps]:
    """Return what never came, by host; a damaged or unreadable file says nothing."""
    total: dict[str, HostGaps] = {}
    for path in _books(state):
        try:
            found = missing(path)
        except (OSError, DamagedGaps):
            continue
        for host, of_host in found.items():
            before = total.get(host, HostGaps(host, 0, 0))
            total[host] = HostGaps(host, before.gaps + of_host.gaps, before.size + of_host.size)
    return [total[host] for host in sorted(total)]


def _books(state: Path) -> Iterable[Path]:
    return sorted(state.glob("p*.gaps"))


def _rfc3339(moment: float) -> str:
    if not moment:
        return ""
    stored = datetime.fromtimestamp(moment, UTC)
    return stored.isoformat(timespec="seconds").replace("+00:00", "Z")
