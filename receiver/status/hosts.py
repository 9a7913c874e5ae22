"""The received files as the stores of the state folder have them: by live file the last line, the bytes, the segments."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from receiver.storage.gaps import missing
from receiver.storage.position import Damaged
from receiver.storage.store import Store

__all__ = ["HostFile", "HostGaps", "files_in", "gaps_in"]

Answer = TypeVar("Answer")

_FILES = """
SELECT path, last_line, length + coalesce(closed, 0), coalesce(count, 0) FROM files LEFT JOIN (
  SELECT live, sum(size) AS closed, count(*) AS count FROM segments WHERE path != live GROUP BY live
) ON live = path WHERE length NOT NULL AND host != ''
"""


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


def files_in(state: Path) -> list[HostFile]:
    """Return the files of all hosts, by path; a store that cannot be read has none."""
    found = [
        HostFile(str(path), _rfc3339(int(str(moment))), int(str(size)), int(str(segments)))
        for rows in _each(state, lambda store: store.rows(_FILES))
        for path, moment, size, segments in rows
    ]
    return sorted(found, key=lambda file: file.path)


def gaps_in(state: Path) -> list[HostGaps]:
    """Return what never came, by host; a store that cannot be read says nothing."""
    gaps, sizes = Counter[str](), Counter[str]()
    for found in _each(state, missing):
        gaps.update({host: one.gaps for host, one in found.items()})
        sizes.update({host: one.size for host, one in found.items()})
    return [HostGaps(host, gaps[host], sizes[host]) for host in sorted(gaps)]


def _each(state: Path, look: Callable[[Store], Answer]) -> Iterator[Answer]:
    for path in sorted(state.glob("p*.db")):
        with suppress(OSError, Damaged), Store(path) as store:
            yield look(store)


def _rfc3339(moment: int) -> str:
    if not moment:
        return ""
    stored = datetime.fromtimestamp(moment // 1_000_000_000, UTC)
    return stored.isoformat().replace("+00:00", "Z")
