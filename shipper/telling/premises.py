"""What `logshipper check` finds on the machine itself: the state folder, the limits, the address. Changes nothing."""

import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

from broker.address import Address
from broker.folder import open_folder
from shipper.cache import FILE_NAME
from shipper.files.handles import most_open_files
from shipper.positions import Positions, PositionsUnreadable
from shipper.telling.finding import Finding, bad, fine
from shipper.telling.live import ask

__all__ = ["check_address", "check_limits", "check_state"]

_GOOD_ROOM = 100
"""Open files with which any number of files can be followed well."""
_INOTIFY = Path("/proc/sys/fs/inotify")


def check_state(folder: Path) -> Iterator[Finding]:
    """Say whether positions can be saved in a host's folder, and what is there already."""
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        yield bad(f"state folder {folder}: {nearest} cannot be written; check --state-dir")
        return
    if nearest != folder:
        yield fine(f"state folder {folder}: will be made")
        return
    try:
        with open_folder(folder) as opened:
            positions = Positions.decode(opened.read(FILE_NAME))
    except FileNotFoundError:
        yield fine(f"state folder {folder}: no saved positions yet")
    except OSError as error:
        yield bad(f"state folder {folder}: {FILE_NAME} cannot be read: {error.strerror}")
    except PositionsUnreadable as error:
        yield fine(f"state folder {folder}: {FILE_NAME} is {error}; rebuilt from the stream")
    else:
        yield fine(f"state folder {folder}: positions of {len(positions.files)} files")
    yield from _running(folder)


def _running(folder: Path) -> Iterator[Finding]:
    try:
        agent = ask(folder)
    except (OSError, ValueError):
        yield bad(f"state folder {folder}: an agent runs there and does not answer")
    else:
        if agent is not None:
            yield fine(f"state folder {folder}: an agent runs there, pid {agent.pid}")


def check_limits(folders: int, files: int) -> Iterator[Finding]:
    """Say whether the kernel lets so many folders be watched and files be open; without it works, and costs more."""
    most, soft = most_open_files(), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    text = f"{files} files, at most {most} of them open at a time; {soft} descriptors allowed"
    # idle files are closed and opened again, but one that is deleted or renamed while closed may be lost sight of
    if most < min(files, _GOOD_ROOM):
        yield bad(f"{text}; raise LimitNOFILE or ulimit -n")
    else:
        yield fine(text)
    watches = _number(_INOTIFY / "max_user_watches")
    if watches is not None:
        text = f"{watches} inotify watches allowed, {folders} folders to watch"
        enough = watches >= folders
        yield fine(text) if enough else bad(f"{text}; raise fs.inotify.max_user_watches")
    if _number(_INOTIFY / "max_user_instances") == 0:
        yield bad("no inotify instances allowed; raise fs.inotify.max_user_instances")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def check_address(address: Address, *, in_use: bool) -> Finding:
    """Say whether `--listen` could listen; `in_use` says that an agent of ours may be doing so."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
            probe.listen(1)
    except OSError as error:
        if in_use:
            return fine(f"address {address}: {error.strerror}, perhaps by the agent that runs")
        return bad(f"address {address}: {error.strerror}; check --listen")
    return fine(f"address {address}: free")
