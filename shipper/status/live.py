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
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from broker.app.exits import OperatorError
from broker.wire.subjects import own_token
from shipper.status.report import HostReport

__all__ = ["Answers", "ask", "require_alone", "status_socket"]

_PREFIX = "logship/agent/"
_SERVICE_USER = "logshipper"  # of the systemd unit
_BACKLOG = 1024
_BATCH = 128  # connections that are accepted at a time, and
_PAUSE = 0.05  # seconds after them: so a flood of connections costs little
_PATIENCE = 5.0  # seconds
_AT_ONCE = 32  # agents that are asked at a time
_LARGEST = 16 * 1024 * 1024  # bytes, of an answer
_CREDENTIALS, _TIMEOUT = struct.Struct("3i"), struct.Struct("ll")
_SOCKETS = Path("/proc/self/net/unix")
logger = logging.getLogger(__name__)


@asynccontextmanager
async def status_socket(
    host: str, report: Callable[[], HostReport], patience: float = 1.0
) -> AsyncIterator[None]:
    """Send the report to root and to processes of this user; a client has `patience` seconds to read it.

    An agent that cannot listen ships all the same.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as listener:
        try:
            listener.bind(f"\0{_prefix(host)}{secrets.token_hex(4)}")
            listener.listen(_BACKLOG)
        except OSError as error:
            logger.warning("no live status: %s", error.strerror or error)
            yield
            return
        serving = asyncio.create_task(_serve(listener, report, patience))
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.wait({serving})


async def _serve(
    listener: socket.socket, report: Callable[[], HostReport], patience: float
) -> None:
    loop = asyncio.get_running_loop()
    while True:
        for _ in range(_BATCH):
            with suppress(OSError), (await loop.sock_accept(listener))[0] as client:
                if _peer_of(client).uid not in {0, os.geteuid()}:
                    continue
                document = json.dumps(report().document()).encode()
                async with asyncio.timeout(patience):
                    await loop.sock_sendall(client, document)
        await asyncio.sleep(_PAUSE)


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


def _peer_of(connection: socket.socket) -> _Peer:
    """Return the other end of a connection as the kernel knows it; of a listener as it was when it began to listen."""
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


def ask(host: str = "", patience: float = _PATIENCE, but: int = 0) -> Answers:
    """Return the status of the agents of a host on this machine, of every host when it is empty; not of the process `but`.

    Blocks for about `patience` seconds at most. Root also asks the agents of the service's user. For each other user
    there is one sentence, whatever that user listens by.
    """
    deadline = time.monotonic() + patience
    prefix = _prefix(host) if host else _PREFIX
    # in threads, so that an agent that does not answer delays no other
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda name: _ask(name, deadline, but), _names(prefix)))
    reports = [one for one in answers if isinstance(one, HostReport) and host in {"", one.host}]
    return Answers(
        tuple(sorted(reports, key=lambda report: (report.host, report.pid))),
        tuple(sorted({one for one in answers if isinstance(one, str)})),
        frozenset(one.user for one in answers if isinstance(one, _Peer)),
    )


def require_alone(host: str, broker: str) -> None:
    """Raise `OperatorError` where another agent of the host lives on this machine and ships to that broker.

    One that does not answer, or that starts at the same moment, may be missed; then the broker ends the older one.
    """
    answers = ask(host, but=os.getpid())
    others = [f"pid {one.pid}" for one in answers.reports if one.broker == broker]
    if "root" in answers.strangers:
        others.append("of user root")
    if others:
        raise OperatorError(
            f"logshipper ({others[0]}) ships for {host} on this machine; stop it, or use --take-over"
        )


def _names(prefix: str) -> Iterable[str]:
    """Return the names of the listeners that begin with `prefix`; none where the kernel hides them."""
    try:
        lines = _SOCKETS.read_text("utf-8", "replace").splitlines()[1:]
    except OSError:
        return ()
    names = {words[7] for words in map(str.split, lines) if len(words) == 8}
    return [one[1:] for one in names if one.startswith(f"@{prefix}")]


def _ask(name: str, deadline: float, but: int) -> HostReport | _Peer | str | None:
    """Return the report of an agent, its process where it is a stranger's, or a sentence; None where there is none."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            # the kernel wakes those who wait for a place in the queue in the order of their arrival
            _limit(client, deadline)
            client.connect(f"\0{name}")
            peer = _peer_of(client)
            if peer.pid and peer.pid == but:
                return None
            return _answer(client, peer, deadline) if peer.uid in _trusted_users() else peer
    except BlockingIOError:
        return "an agent cannot be asked, because too many others ask it; try again"
    except OSError:
        return None  # it has just ended


def _trusted_users() -> set[int]:
    """Return the users whose agents we believe: this one and, as root, the user of the service."""
    trusted = {os.geteuid()}
    if os.geteuid() == 0:
        with suppress(KeyError):
            trusted.add(pwd.getpwnam(_SERVICE_USER).pw_uid)
    return trusted


def _answer(client: socket.socket, peer: _Peer, deadline: float) -> HostReport | str:
    who = f"the agent with pid {peer.pid} of user {peer.user}"
    try:
        report = HostReport.decode(_read(client, deadline))
    except BlockingIOError:
        return f"{who} does not answer; it is stuck"
    except ValueError:
        return f"{who} does not answer as this program does; is it of another version?"
    return replace(report, running=True, pid=peer.pid, user=peer.user)


def _read(client: socket.socket, deadline: float) -> bytes:
    """Return all that is sent; raises `ValueError` where it is too much, `BlockingIOError` after the deadline."""
    answer = bytearray()
    while piece := client.recv(1 << 16):
        answer += piece
        if len(answer) > _LARGEST:
            raise ValueError("too much")
        if time.monotonic() > deadline:
            raise BlockingIOError
        _limit(client, deadline)
    return bytes(answer)


def _limit(client: socket.socket, deadline: float) -> None:
    """Have the next call wait until the deadline at most; a moment for an agent whose turn comes behind it."""
    left = max(0.01, deadline - time.monotonic())
    limit = _TIMEOUT.pack(*divmod(int(left * 1_000_000), 1_000_000))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def _prefix(host: str) -> str:
    return f"{_PREFIX}{own_token(host)[:64]}/"
