"""The abstract unix socket of an agent, for `logshipper status` and a second agent of the host.

The kernel frees the name when the process ends; nothing is left on disk. Any local user may bind
and connect to any name, so each side trusts only the user id that the kernel reports. An agent
answers root and its own user; a client trusts root, its own user and, as root, the service's user.
"""

import asyncio
import json
import logging
import os
import pwd
import secrets
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from nats_logship.app.exits import OperatorError
from nats_logship.wire.subjects import make_token
from shipper.status.report import HostReport

_PREFIX = "logship/agent/"
_SERVICE_USER = "logshipper"  # of the systemd unit
_PATIENCE = 5.0  # seconds
_ROOT = 0
logger = logging.getLogger(__name__)


class Peer(NamedTuple):
    """The process at the other end of a connection; `pid` is 0 if it is in another namespace."""

    pid: int
    uid: int

    @classmethod
    def of(cls, writer: asyncio.StreamWriter) -> "Peer":
        """Return the other end; a listener is reported as it was when it began to listen."""
        connection: socket.socket = writer.get_extra_info("socket")
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return cls(*struct.unpack("3i", found)[:2])


@asynccontextmanager
async def status_socket(host: str, report: Callable[[], HostReport]) -> AsyncIterator[None]:
    """Send the report to root and to this user; without a socket a warning is logged."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)  # `drain` waits for the client
        try:
            if Peer.of(writer).uid in {_ROOT, os.geteuid()}:
                writer.write(json.dumps(report().model_dump()).encode())
                async with asyncio.timeout(_PATIENCE):
                    await writer.drain()
            writer.close()
        except (OSError, TimeoutError, asyncio.CancelledError):  # Python 3.11 logs the last one
            writer.transport.abort()

    with ExitStack() as stack:
        try:
            name = f"\0{_prefix(host)}{secrets.token_hex(4)}"
            server = await asyncio.start_unix_server(answer, name)
            stack.callback(server.close)
        except OSError as error:
            logger.warning("no live status: %s", error.strerror or error)
        yield


async def ask(host: str = "", patience: float = _PATIENCE) -> tuple[list[HostReport], list[Peer]]:
    """Return the reports of a host's agents, or of all, and the agents that do not answer."""
    names = _names(_prefix(host) if host else _PREFIX)
    answers = await asyncio.gather(*(_ask(name, patience) for name in names))
    reports = [one for one in answers if isinstance(one, HostReport) and host in {"", one.host}]
    reports.sort(key=lambda report: (report.host, report.pid or 0))
    return _find_superseded(reports), [one for one in answers if isinstance(one, Peer)]


def _find_superseded(reports: list[HostReport]) -> list[HostReport]:
    """Return the reports, of which those of older agents of a host name the newest one."""
    found = []
    for one in reports:
        rivals = [r for r in reports if (r.host, r.broker) == (one.host, one.broker)]
        newest = max(rivals, key=lambda rival: rival.agent)
        pid = newest.pid if newest.agent > one.agent else None
        found.append(one.model_copy(update={"superseded_by": pid}))
    return found


async def require_alone(host: str, broker: str) -> None:
    """Raise `OperatorError` if another agent of the host on this machine ships to that broker.

    An agent of root counts for any broker, as it does not answer others. An agent that hangs, or
    starts at the same moment, may be missed; then the broker ends the older one.
    """
    reports, silent = await ask(host)
    others = [one.pid for one in reports if one.broker == broker and one.pid != os.getpid()]
    others += [one.pid for one in silent if one.uid == _ROOT != os.geteuid()]
    if others:
        raise OperatorError(
            f"another shipper (pid {others[0]}) already ships for {host} on this machine; "
            "stop it, or use --take-over"
        )


def _prefix(host: str) -> str:
    return f"{_PREFIX}{make_token(host)[:64]}/"


def _names(prefix: str) -> set[str]:
    fields: list[str] = []
    with suppress(OSError):  # the kernel hides the listeners: none can be asked
        fields = Path("/proc/self/net/unix").read_text("utf-8", "replace").split()
    return {field[1:] for field in fields if field.startswith(f"@{prefix}")}


async def _ask(name: str, patience: float) -> HostReport | Peer | None:
    """Return an agent's report, its process without one, or None if it is gone or not trusted."""
    try:
        reader, writer = await asyncio.open_unix_connection(f"\0{name}")
    except OSError:
        return None  # it has just ended
    peer = Peer.of(writer)
    try:
        if peer.uid not in _trusted():
            return None
        async with asyncio.timeout(patience):
            report = HostReport.model_validate(json.loads(await reader.read()))
        user = "" if peer.uid == os.geteuid() else _name_user(peer.uid)
        return report.model_copy(update={"pid": peer.pid or report.pid, "user": user})
    except (TimeoutError, OSError, ValueError):
        return peer
    finally:
        writer.close()


def _name_user(uid: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def _trusted() -> set[int]:
    users = {_ROOT, os.geteuid()}
    if os.geteuid() == _ROOT:
        with suppress(KeyError):
            users.add(pwd.getpwnam(_SERVICE_USER).pw_uid)
    return users
