"""What `logshipper check` finds on the machine itself: an agent that runs, the limits, the address. Changes nothing."""

import resource
import socket
from collections.abc import Iterator
from pathlib import Path

from broker.app.address import Address
from shipper.files.handles import most_open_files
from shipper.telling.finding import Finding, bad, fine
from shipper.telling.live import ask

__all__ = ["check_address", "check_limits", "check_running"]

_GOOD_ROOM = 100
"""Open files with which any number of files can be followed well."""
_INOTIFY = Path("/proc/sys/fs/inotify")


def check_running(host: str) -> Iterator[Finding]:
    """Say whether an agent of the host runs on this machine."""
    heard = ask(host)
    yield from map(bad, heard.broken)
    yield from map(fine, heard.not_asked)
    for agent in heard.reports:
        yield fine(f"an agent of {host} runs here, pid {agent.pid} of user {agent.user}")


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
