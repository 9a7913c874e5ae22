"""The abstract unix sockets of the agents on this machine: the kernel frees each when its process ends, and leaves nothing on disk.

Any local user may bind and connect to any name, so both ends ask the kernel who the other one is, and trust few users.
"""

import asyncio
import os
import pwd
import socket
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

__all__ = [
    "SERVICE_USER",
    "Listener",
    "Peer",
    "ask_each",
    "seconds_until",
    "trusted_users",
]

SERVICE_USER = "logshipper"
"""The user of the systemd unit."""

_BACKLOG = 1024
_BATCH = 128  # connections that are accepted at a time, and
_PAUSE = 0.05  # seconds after them: so a flood of connections costs little
_CREDENTIALS, _TIMEOUT = struct.Struct("3i"), struct.Struct("ll")
_SOCKETS = Path("/proc/self/net/unix")
_AT_ONCE = 32  # listeners that are asked at a time
_MOMENT = 0.01  # seconds
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Peer:
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


def trusted_users(service: str = SERVICE_USER) -> set[int]:
    """Return the users whose processes are taken for agents: root, this user and, for root, the user of the service."""
    trusted = {0, os.geteuid()}
    if os.geteuid() == 0:
        with suppress(KeyError):
            trusted.add(pwd.getpwnam(service).pw_uid)
    return trusted


def ask_each(
    prefix: str, deadline: float, ask: Callable[[str, socket.socket, Peer], Answer]
) -> list[Answer | OSError]:
    """Connect to each listener whose name begins with `prefix`, of any user, and return what `ask` returns, or what it raises.

    Asks in threads, so that a listener that does not answer delays no other. `BlockingIOError` is for a listener whose
    queue is full until the deadline. The list is empty where the kernel hides the names.
    """

    def answer(name: str) -> Answer | OSError:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                _connect(client, name, deadline)
                return ask(name, client, _peer_of(client))
        except OSError as error:
            return error

    try:
        lines = _SOCKETS.read_text("utf-8", "replace").splitlines()[1:]
    except OSError:
        return []
    names = {words[7] for words in map(str.split, lines) if len(words) == 8}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(answer, [one[1:] for one in names if one.startswith(f"@{prefix}")]))


def seconds_until(deadline: float) -> float:
    """Return how long to wait still, on the monotonic clock: a moment for a listener whose turn comes after the deadline."""
    return max(_MOMENT, deadline - time.monotonic())


def _connect(client: socket.socket, name: str, deadline: float) -> None:
    # the kernel wakes those who wait for a place in the queue in the order of their arrival; trying again and again
    # instead would lose against a user who floods the listener
    patience = divmod(int(seconds_until(deadline) * 1_000_000), 1_000_000)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEOUT.pack(*patience))
    client.connect(f"\0{name}")


def _peer_of(connection: socket.socket) -> Peer:
    """Return the other end of a connection as the kernel knows it; of a listener as it was when it began to listen."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return Peer(pid, uid)


class Listener:
    """Listens by a name and hands each connection over, with its peer; accepts in batches with pauses between them."""

    def __init__(self, name: str, serve: Callable[[socket.socket, Peer], None]) -> None:
        """Listen from now on; raises OSError. `serve` closes the connection."""
        self._serve = serve
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.bind(f"\0{name}")
            self._socket.listen(_BACKLOG)
        except OSError:
            self._socket.close()
            raise
        self._resume()

    def close(self) -> None:
        """Stop listening."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _resume(self) -> None:
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            for _ in range(_BATCH):
                client = self._socket.accept()[0]
                self._serve(client, _peer_of(client))
        loop.remove_reader(self._socket)
        loop.call_later(_PAUSE, self._resume)
