"""What `logshipper status` shows: what a running agent says of itself, else the saved positions beside the files."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from broker.exits import OperatorError
from broker.folder import open_folder
from broker.printable import printable
from broker.sizes import format_size
from shipper.cache import FILE_NAME
from shipper.cursor import Cursor
from shipper.positions import Positions, PositionsUnreadable
from shipper.telling.live import SOCKET_NAME, ask
from shipper.telling.report import FileReport, HostReport, Trouble
from shipper.telling.view import rfc3339

__all__ = ["render", "render_json", "survey"]


def survey(state_dir: Path, host: str) -> list[HostReport]:
    """Return how `host` stands, or every host in the folder when it is empty.

    Raises `OperatorError` when no agent runs and nothing was saved there, or nothing of it can be read; of several hosts
    those that can be are returned, and the others as troubles.
    """
    try:
        folders = sorted(path for path in state_dir.iterdir() if host in {"", path.name})
    except FileNotFoundError:
        folders = []
    except OSError as error:
        raise OperatorError(f"cannot read {state_dir}: {error.strerror}") from None
    found: list[HostReport] = []
    failed: list[HostReport] = []
    for folder in folders:
        try:
            found += [] if (report := _host(folder)) is None else [report]
        except OperatorError as error:
            if folder == folders[-1] and not found:
                raise
            failed.append(_failed(folder, error))
    if not found:
        pattern = f"{host or '*'}/{FILE_NAME}"
        raise OperatorError(
            f"no saved positions at {state_dir / pattern}; check --state-dir and --host"
        )
    return found + failed


def _failed(folder: Path, error: OperatorError) -> HostReport:
    troubles = (Trouble(str(folder), str(error)),)
    return HostReport(folder.name, "", 0, running=False, files=(), troubles=troubles)


def _host(folder: Path) -> HostReport | None:
    try:
        live = ask(folder)
        if live is not None and live.agent:
            return live
        saved = _saved(folder / FILE_NAME)
    except (TimeoutError, ValueError):
        raise OperatorError(
            f"an agent runs and does not answer at {folder / SOCKET_NAME}; it is stuck, or of another version"
        ) from None
    except OSError as error:
        raise OperatorError(f"cannot read {error.filename or folder}: {error.strerror}") from None
    return saved if live is None else _starting(live, saved)


def _starting(live: HostReport, saved: HostReport | None) -> HostReport:
    # before its subject is claimed an agent knows no files, and where it will go on is what was saved
    if saved is None:
        return live
    files = tuple(replace(file, reason=live.waiting_for) for file in saved.files)
    return replace(live, sequence=saved.sequence, saved=saved.saved, files=files)


def _saved(path: Path) -> HostReport | None:
    try:
        data, written = _read(path)
        positions = Positions.decode(data)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PositionsUnreadable as error:
        raise OperatorError(
            f"{path}: {error}; the next start of the shipper rebuilds it from the stream"
        ) from None
    return HostReport(
        host=path.parent.name,
        agent=positions.agent,
        sequence=positions.sequence,
        running=False,
        files=tuple(map(_file, positions.files.values())),
        saved=rfc3339(written),
    )


def _read(path: Path) -> tuple[bytes, int]:
    """Return what a regular file holds, and when it was written; raises OSError, also for a link, pipe or device."""
    with open_folder(path.parent) as folder:
        descriptor = folder.open(path.name, os.O_RDONLY)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(), os.fstat(descriptor).st_mtime_ns


def _file(cursor: Cursor) -> FileReport:
    size = None
    try:
        found = os.stat(cursor.path)  # noqa: PTH116 - a path of any bytes, as it was followed
        size = found.st_size if found.st_ino == cursor.identity.inode else None
    except OSError:
        pass  # gone, or not ours to see; that's fine, its position still shows
    return FileReport(
        path=cursor.path,
        file=cursor.file,
        state="gone" if size is None else "saved",
        reason="not running",
        size_bytes=size,
        position_bytes=cursor.offset,
        behind_bytes=None if size is None else max(0, size - cursor.offset),
        last_read=rfc3339(cursor.seen),
    )


def render_json(hosts: Sequence[HostReport]) -> str:
    """Return the reports as JSON: a list with an object per host."""
    return json.dumps([host.document() for host in hosts], indent=2)


def render(hosts: Sequence[HostReport]) -> str:
    """Return the reports as a table per host, the files that are furthest behind first."""
    return "\n\n".join(map(_table, hosts))


def _table(host: HostReport) -> str:
    rows: list[tuple[str, ...]] = [
        ("size", "position", "behind", "waits", "rate", "lines/s", "state", "path")
    ]
    rows += [
        _row(file, host)
        for file in sorted(host.files, key=lambda f: (-(f.behind_bytes or 0), f.path))
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(7)]
    lines = [
        "  ".join(
            [
                *(cell.rjust(width) for cell, width in zip(row[:6], widths, strict=False)),
                row[6].ljust(widths[6]),
                row[7],
            ]
        )
        for row in rows
    ]
    troubles = [
        f"not followed: {printable(one.path)}: {printable(one.reason)}" for one in host.troubles
    ]
    passed = len(host.passed_over)
    if passed:
        troubles.append(f"not followed: {passed} files that were not written for --ignore-older")
    return "\n".join(map(printable, [*_head(host), *lines, *troubles]))


def _head(host: HostReport) -> list[str]:
    behind = f"{len(host.files)} files, {format_size(host.behind_bytes)} behind"
    agent = f"agent {host.agent or '-'}, sequence {host.sequence}"
    if not host.running:
        return [f"host {host.host}: not running; {agent}, saved {host.saved}; {behind}"]
    since = f"up since {host.up_since}, last ack {host.last_ack or 'none yet'}"
    head = [f"host {host.host}: running, pid {host.pid}, {since}; {agent}; {behind}"]
    if host.waiting_for:
        head.append(f"waiting for: {printable(host.waiting_for)}")
    if host.lost_bytes:
        lost = (f"{format_size(size)} ({cause})" for cause, size in host.lost_bytes.items())
        head.append(f"lost since then: {', '.join(lost)}")
    return head


def _row(file: FileReport, host: HostReport) -> tuple[str, ...]:
    # what all files wait for stands in the head
    reason = "" if file.reason == host.waiting_for or not host.running else file.reason
    path = printable(file.path)
    return (
        "gone" if file.size_bytes is None else format_size(file.size_bytes),
        str(file.position_bytes),
        "?" if file.behind_bytes is None else format_size(file.behind_bytes),
        _age(file.oldest_unshipped_seconds),
        "-" if not file.bytes_per_second else f"{format_size(round(file.bytes_per_second))}/s",
        "-" if not file.lines_per_second else f"{file.lines_per_second:,.1f}",
        file.state,
        f"{path} ({printable(reason)})" if reason else path,
    )


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:.1f}s"
