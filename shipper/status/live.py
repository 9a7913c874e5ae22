"""The abstract unix socket of an agent: `logshipper status` asks it, and so does a second agent of the host, which then refuses.

The kernel frees it when the process ends, and nothing is left on disk. Any local user may bind and connect to any name, so
each side trusts only what the kernel says of the other: an agent answers root and its own user, and whoever asks learns
from the kernel which process and user answered.
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
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from broker.app.exits import OperatorError
from broker.wire.subjects import own_token
from shipper.status.report import HostReport

__all__ = ["Answers", "ask", "require_alone", "status_socket"]

_PREFIX = "logship/agent/"
_SERVICE_USER = "logshipper"  # of the systemd unit
_PATIENCE = 5.0  # seconds
_CREDENTIALS = struct.Struct("3i")
_SOCKETS = Path("/proc/self/net/unix")
logger = logging.getLogger(__name__)


@asynccontextmanager
async def status_socket(host: str, report: Callable[[], HostReport]) -> AsyncIterator[None]:
    """Send the report to root and to processes of this user; an agent that cannot listen ships all the same."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)  # `drain` waits until the client has it all
        with suppress(OSError, TimeoutError):
            if _peer_of(writer).uid in {0, os.geteuid()}:
                writer.write(json.dumps(report().document()).encode())
                async with asyncio.timeout(_PATIENCE):
                    await writer.drain()
        writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    name = f"\0{_prefix(host)}{secrets.token_hex(4)}"
    try:
        server = await asyncio.start_unix_server(answer, name)
    except OSError as error:
        logger.warning("no live status: %s", error.strerror or error)
        yield
        return
    try:
        yield
    finally:
        server.close()


@dataclass(frozen=True, slots=True)
class _Peer:
    """The process at the other end of a connection; `pid` is 0 where the process is in a namespace that cannot be seen."""

    pid: int
    uid: int

    @property
    def user(self) -> str:
        """The name of the user, or the number where the user has no name."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)


def _peer_of(writer: asyncio.StreamWriter) -> _Peer:
    """Return the other end of a connection as the kernel knows it; of a listener as it was when it began to listen."""
    connection: socket.socket = writer.get_extra_info("socket")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return _Peer(pid, uid)


@dataclass(frozen=True, slots=True)
class Answers:
    """What the agents on this machine answered.

    `broken` are sentences on those that did not as they should, `strangers` the users whose agents answer us nothing.
    """

    reports: tuple[HostReport, ...] = ()
    broken: tuple[str, ...] = ()
    strangers: frozenset[str] = frozenset()

    @property
    def not_asked(self) -> list[str]:
        """Sentences on the agents that answer us nothing."""
        asker = "that user" if os.geteuid() == 0 else "root"
        users = sorted(self.strangers)
        return [f"agents of user {user} run here; ask as {asker} to see them" for user in users]


async def ask(host: str = "", patience: float = _PATIENCE, but: int = 0) -> Answers:
    """Return the status of the agents of a host on this machine, of every host when it is empty; not of the process `but`.

    Takes about `patience` seconds at most. Root also asks the agents of the service's user.
    """
    prefix = _prefix(host) if host else _PREFIX
    answers = await asyncio.gather(*(_ask(name, patience, but) for name in _names(prefix)))
    reports = [one for one in answers if isinstance(one, HostReport) and host in {"", one.host}]
    return Answers(
        tuple(sorted(reports, key=lambda report: (report.host, report.pid))),
        tuple(sorted({one for one in answers if isinstance(one, str)})),
        frozenset(one.user for one in answers if isinstance(one, _Peer)),
    )


async def require_alone(host: str, broker: str) -> None:
    """Raise `OperatorError` where another agent of the host lives on this machine and ships to that broker.

    One that does not answer, or that starts at the same moment, may be missed; then the broker ends the older one.
    """
    answers = await ask(host, but=os.getpid())
    others = [f"pid {one.pid}" for one in answers.reports if one.broker == broker]
    if "root" in answers.strangers:
        others.append("of user root")
    if others:
        raise OperatorError(
            f"logshipper ({others[0]}) ships for {host} on this machine; stop it, or use --take-over"
        )


def _names(prefix: str) -> set[str]:
    """Return the names of the listeners that begin with `prefix`; none where the kernel hides them."""
    try:
        lines = _SOCKETS.read_text("utf-8", "replace").splitlines()[1:]
    except OSError:
        return set()
    names = {words[7] for words in map(str.split, lines) if len(words) == 8}
    return {one[1:] for one in names if one.startswith(f"@{prefix}")}


async def _ask(name: str, patience: float, but: int) -> HostReport | _Peer | str | None:
    """Return the report of an agent, its process where it is a stranger's, or a sentence; None where there is none."""
    try:
        reader, writer = await asyncio.open_unix_connection(f"\0{name}")
    except OSError:
        return None  # it has just ended
    try:
        peer = _peer_of(writer)
        if peer.pid and peer.pid == but:
            return None
        return await _answer(reader, peer, patience) if peer.uid in _trusted_users() else peer
    finally:
        writer.close()


def _trusted_users() -> set[int]:
    """Return the users whose agents we believe: this one and, as root, the user of the service."""
    trusted = {os.geteuid()}
    if os.geteuid() == 0:
        with suppress(KeyError):
            trusted.add(pwd.getpwnam(_SERVICE_USER).pw_uid)
    return trusted


async def _answer(reader: asyncio.StreamReader, peer: _Peer, patience: float) -> HostReport | str:
    who = f"the agent with pid {peer.pid} of user {peer.user}"
    try:
        async with asyncio.timeout(patience):
            report = HostReport.decode(await reader.read())
    except (TimeoutError, OSError):
        return f"{who} does not answer; it is stuck"
    except ValueError:
        return f"{who} does not answer as this program does; is it of another version?"
    return replace(report, running=True, pid=peer.pid, user=peer.user)


def _prefix(host: str) -> str:
    return f"{_PREFIX}{own_token(host)[:64]}/"
