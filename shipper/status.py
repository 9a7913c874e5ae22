"""What `logshipper status` shows: the saved positions beside the files as they are now; needs no agent and no broker."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from broker.exits import OperatorError
from broker.printable import printable
from shipper.cache import FILE_NAME
from shipper.cursor import Cursor
from shipper.positions import Positions, PositionsUnreadable

__all__ = ["FileStatus", "HostStatus", "render", "render_json", "survey"]


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file's position; `size` and `behind` (bytes) are None where its path no longer leads to it."""

    path: str
    file: str
    position: int
    size: int | None
    behind: int | None
    last_read: str


@dataclass(frozen=True, slots=True)
class HostStatus:
    """The saved positions of one host; `sequence` is the stream's, of the last acknowledged block."""

    host: str
    agent: str
    sequence: int
    saved: str
    files: tuple[FileStatus, ...]


def survey(state_dir: Path, host: str) -> list[HostStatus]:
    """Return the state of `host`, or of every host in the folder when it is empty.

    Raises `OperatorError` when nothing was saved there or it cannot be read.
    """
    pattern = f"{host or '*'}/{FILE_NAME}"
    try:
        paths = sorted(path for path in state_dir.iterdir() if (path / FILE_NAME).is_file())
        found = [_host(path / FILE_NAME) for path in paths if host in {"", path.name}]
    except FileNotFoundError:
        found = []
    except OSError as error:
        raise OperatorError(f"cannot read {state_dir}: {error.strerror}") from None
    if not found:
        raise OperatorError(
            f"no saved positions at {state_dir / pattern}; check --state-dir and --host"
        )
    return found


def _host(path: Path) -> HostStatus:
    try:
        positions = Positions.decode(path.read_bytes())
    except PositionsUnreadable as error:
        raise OperatorError(
            f"{path}: {error}; the next start of the shipper rebuilds it from the stream"
        ) from None
    files = sorted(map(_file, positions.files.values()), key=lambda status: status.path)
    saved = _time(path.stat().st_mtime_ns)
    return HostStatus(path.parent.name, positions.agent, positions.sequence, saved, tuple(files))


def _file(cursor: Cursor) -> FileStatus:
    size = None
    try:
        found = os.stat(cursor.path)  # noqa: PTH116 - a path of any bytes, as it was followed
        size = found.st_size if found.st_ino == cursor.identity.inode else None
    except OSError:
        pass  # gone, or not ours to see; that's fine, its position still shows
    behind = None if size is None else max(0, size - cursor.offset)
    return FileStatus(cursor.path, cursor.file, cursor.offset, size, behind, _time(cursor.seen))


def _time(nanoseconds: int) -> str:
    moment = datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC)
    return moment.isoformat().replace("+00:00", "Z")


def render_json(hosts: Sequence[HostStatus]) -> str:
    """Return the states as JSON: a list with an object per host."""
    return json.dumps([asdict(host) for host in hosts], indent=2)


def render(hosts: Sequence[HostStatus]) -> str:
    """Return the states as a table per host."""
    return "\n\n".join(map(_table, hosts))


def _table(host: HostStatus) -> str:
    rows = [("size", "position", "behind", "last read", "path")]
    for file in host.files:
        size = "gone" if file.size is None else str(file.size)
        behind = "?" if file.behind is None else str(file.behind)
        rows.append((size, str(file.position), behind, file.last_read, printable(file.path)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join([*(cell.rjust(width) for cell, width in zip(row, widths, strict=False)), row[4]])
        for row in rows
    ]
    head = (
        f"host {host.host}: agent {host.agent or '-'}, sequence {host.sequence}, saved {host.saved}"
    )
    return "\n".join([head, *lines])
