"""What `logshipper check` finds: would the agent reach its broker, and which files would it follow. Changes nothing."""

import json
import os
import resource
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from broker.app.address import Address
from broker.app.exits import OperatorError
from broker.app.printable import printable
from broker.client.bucket import read
from broker.client.connection import BrokerAway, Connection, ConnectionLost, Rejected
from broker.client.rights import may_publish
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY, STREAM, partitions_in
from broker.wire.subjects import Subject, host_filter, registry_consumer
from shipper.publish.claim import Registry
from shipper.publish.waiting import reason_of
from shipper.status.live import ask
from shipper.tail.notices import NoticeKind
from shipper.tail.open_files import most_open_files
from shipper.tail.paths import Selection
from shipper.tail.scan import FileEntry, Scan, scan

__all__ = [
    "Finding",
    "Mark",
    "bad",
    "check_address",
    "check_broker",
    "check_files",
    "check_limits",
    "check_running",
    "fine",
    "left_out",
    "seen_by",
]


class Mark(Enum):
    """What a finding means for the agent; the values are what stands before it."""

    FINE = "ok "
    LEFT_OUT = "-- "
    BAD = "BAD"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    mark: Mark
    text: str

    def __str__(self) -> str:
        """Return the line, whatever stands in the paths that it names."""
        return f"{self.mark.value} {printable(self.text)}"


def fine(text: str) -> Finding:
    """Return what the agent can work with."""
    return Finding(Mark.FINE, text)


def left_out(text: str) -> Finding:
    """Return what it will pass over, as it was told to."""
    return Finding(Mark.LEFT_OUT, text)


def bad(text: str) -> Finding:
    """Return what someone must mend."""
    return Finding(Mark.BAD, text)


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


async def check_broker(
    connection: Connection, host: str, explain: Callable[[Rejected], str] = reason_of
) -> list[Finding]:
    """Reach the broker, the number of partitions and the stream, and ask for the rights; publishes nothing.

    `explain` says what a refusal means.
    """
    try:
        await connection.once()
        entry = await read(connection, CONFIG_BUCKET, PARTITIONS_KEY)
        partitions = partitions_in(entry.value if entry else None)
        if partitions is None:
            return [bad("the number of partitions is not set, or no number; run `logbroker apply`")]
        subject = Subject.for_host(host, partitions)
        newest = await Registry(connection, subject).newest()
        rights = await _rights(connection, subject)
    except BrokerAway as error:
        return [bad(str(error))]
    except ConnectionLost as error:
        return [bad(f"the broker at {connection.servers} did not answer: {error}")]
    except Rejected as error:
        return [bad(f"broker at {connection.servers}: {explain(error)}")]
    except (OperatorError, ValueError) as error:
        return [bad(str(error))]
    finally:
        await connection.close()
    last = f"last message {newest.sequence}" if newest else "nothing there yet"
    reached = (
        f"broker at {connection.servers}: stream {STREAM}, {subject} of {partitions} partitions"
    )
    return [fine(f"{reached}, {last}"), *rights]


async def _rights(connection: Connection, subject: Subject) -> list[Finding]:
    reading = (
        f"CONSUMER.CREATE.{STREAM}.{registry_consumer(subject.host)}.{host_filter(subject.host)}"
    )
    needed = (str(subject), await connection.api_subject(reading))
    try:
        answer = json.loads((await connection.request("$SYS.REQ.USER.INFO", patience=2)).data)
        permissions = answer["data"].get("permissions")
    except (Rejected, ConnectionLost, ValueError, KeyError):
        return [fine("the server does not tell what this user may do; that shows at the start")]
    denied = [needs for needs in needed if not may_publish(permissions, needs)]
    if denied:
        return [
            bad(f"this user may not publish to {needs}; see its permissions") for needs in denied
        ]
    return [fine(f"this user may publish to {subject}")]


def seen_by(selection: Selection) -> Scan:
    """Look at the folders as the agent does."""
    return scan(selection, ())


def check_files(selection: Selection, shown: Scan, now: int) -> Iterator[Finding]:
    """Say of each file whether it would be followed, and why not; `now` is nanoseconds since the epoch."""
    paths = {entry.path for entry in shown.entries}
    for entry in shown.entries:
        if entry.wanted:
            yield _judge(entry, selection, now)
    for entry in scan(replace(selection, excluded=()), ()).entries:
        if entry.wanted and entry.path not in paths:
            yield left_out(f"{entry.path}: left out by --exclude")
    for trouble in shown.troubles:
        yield _trouble(trouble.kind, f"{trouble.path}: {trouble.text}")


def _judge(entry: FileEntry, selection: Selection, now: int) -> Finding:
    if not os.access(entry.path, os.R_OK):
        return bad(f"{entry.path}: cannot be read; check its permissions")
    if selection.is_too_old(entry.modified, now):
        return left_out(
            f"{entry.path}: not written for longer than --ignore-older, unless it was followed before"
        )
    return fine(f"{entry.path}: {entry.size} bytes")


def _trouble(kind: NoticeKind, text: str) -> Finding:
    return left_out(text) if kind is NoticeKind.REFUSED else bad(text)
