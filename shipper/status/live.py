"""The status of a running agent, as JSON on an abstract unix socket: serves it, and asks the agents of this machine for theirs.

Each side trusts only what the kernel says of the other: an agent answers root and its own user, and whoever asks
learns from the kernel which process and user answered.
"""

import asyncio
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType

from broker.wire.subjects import own_token
from shipper.status.report import HostReport
from shipper.status.sockets import Listener, Peer, connect, listening, peer_of, trusted_users

__all__ = ["Heard", "StatusSocket", "ask"]

_PREFIX = "logship/status/"
_MOST_CLIENTS = 8
_PATIENCE = 5.0  # seconds
_LEAST_PATIENCE = 0.05  # seconds, for an agent whose turn comes late
_LARGEST = 16 * 1024 * 1024  # bytes, of an answer
_AT_ONCE = 32  # agents that are asked at a time
logger = logging.getLogger(__name__)


class StatusSocket:
    """Sends the status to root, and to processes of the agent's own user, while it is entered."""

    def __init__(
        self, host: str, report: Callable[[], HostReport], patience: float = _PATIENCE
    ) -> None:
        """Remember the host; a client has `patience` seconds to read what `report` returns."""
        self._name = f"{_prefix(host)}{os.getpid()}"
        self._report = report
        self._patience = patience
        self._listener: Listener | None = None
        self._sending: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "StatusSocket":
        """Listen; an agent that cannot ships all the same."""
        try:
            self._listener = Listener(self._name, self._serve)
        except OSError as error:
            logger.warning("no live status: %s", error.strerror or error)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop listening, and cut off the clients that still read."""
        if self._listener is not None:
            self._listener.close()
        for sending in self._sending:
            sending.cancel()

    def _serve(self, client: socket.socket, peer: Peer) -> None:
        if peer.uid in {0, os.geteuid()} and len(self._sending) < _MOST_CLIENTS:
            sending = asyncio.get_running_loop().create_task(self._send(client))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        else:
            client.close()

    async def _send(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.setblocking(False)
            async with asyncio.timeout(self._patience):
                await asyncio.get_running_loop().sock_sendall(client, self._report().encode())


@dataclass(frozen=True, slots=True)
class Heard:
    """What the agents on this machine answered; `broken` and `not_asked` are sentences on those that did not."""

    reports: list[HostReport] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    not_asked: list[str] = field(default_factory=list)


def ask(host: str = "", patience: float = _PATIENCE) -> Heard:
    """Return the status of the running agents of a host on this machine, of every host when it is empty.

    Blocks for about `patience` seconds at most. Root also asks the agents of the service's user.
    """
    asking = _Asking(host, time.monotonic() + patience)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(asking.ask, listening(_prefix(host) if host else _PREFIX)))
    return asking.heard()


class _Asking:
    """Collects the answers; agents are asked in threads, so that one that does not answer delays no other."""

    def __init__(self, host: str, deadline: float) -> None:
        self._host = host
        self._deadline = deadline
        self._reports: list[HostReport] = []
        self._broken: list[str] = []
        self._others: set[Peer] = set()
        self._crowded: list[str] = []

    def ask(self, name: str) -> None:
        """Ask the process that listens by a name, if it is a trusted user's agent."""
        try:
            with connect(name, self._patience) as client:
                peer = peer_of(client)
                if str(peer.pid) == name.rpartition("/")[2]:  # else it is no agent
                    self._ask(client, peer)
        except BlockingIOError:
            self._crowded.append(name)
        except OSError:
            pass  # it has ended meanwhile

    def _ask(self, client: socket.socket, peer: Peer) -> None:
        if not _may_ask(peer):
            self._others.add(peer)
            return
        who = f"the agent with pid {peer.pid} of user {peer.user}"
        try:
            report = HostReport.decode(self._read(client))
        except TimeoutError:
            self._broken.append(f"{who} does not answer; it is stuck")
        except ValueError:
            self._broken.append(
                f"{who} does not answer as this program does; is it of another version?"
            )
        else:
            if self._host in {"", report.host}:
                self._reports.append(replace(report, running=True, pid=peer.pid, user=peer.user))

    def _read(self, client: socket.socket) -> bytes:
        """Return all that is sent; raises `ValueError` where it is too much, `TimeoutError` at the deadline."""
        answer = bytearray()
        client.settimeout(self._patience)
        while piece := client.recv(1 << 16):
            answer += piece
            if len(answer) > _LARGEST:
                raise ValueError("too much")
            if time.monotonic() > self._deadline:
                raise TimeoutError
            client.settimeout(self._patience)
        return bytes(answer)

    @property
    def _patience(self) -> float:
        return max(_LEAST_PATIENCE, self._deadline - time.monotonic())

    def heard(self) -> Heard:
        """Return the answers: one sentence for each other user, whatever that user binds."""
        self._reports.sort(key=lambda report: (report.host, report.pid))
        if self._crowded:
            self._broken.append(
                f"{len(self._crowded)} agents cannot be asked: too many others ask them; try again"
            )
        asker = "that user" if os.geteuid() == 0 else "root"
        others = Counter(peer.user for peer in self._others)
        not_asked = [
            f"{count} agents of user {user} run here and are not shown; ask as {asker}"
            for user, count in sorted(others.items())
        ]
        return Heard(self._reports, sorted(self._broken), not_asked)


def _may_ask(peer: Peer) -> bool:
    """Whether a process would answer, and is taken for an agent."""
    return peer.uid == os.geteuid() or (os.geteuid() == 0 and peer.uid in trusted_users())


def _prefix(host: str) -> str:
    return f"{_PREFIX}{own_token(host)[:64]}/"
