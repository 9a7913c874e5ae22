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
    "connect",
    "holders",
    "peer_of",
    "seconds_until",
    "trusted_users",
]

SERVICE_USER = "logshipper"
"""The user of the systemd unit."""

_BACKLOG = 1024
_BATCH, _PAUSE = (
    128,
    0.05,
)  # connections, and seconds after them: a flood of connections costs little
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


def peer_of(connection: socket.socket) -> Peer:
    """Return the other end of a connection as the kernel knows it; of a listener as it was when it began to listen."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return Peer(pid, uid)


def connect(name: str, deadline: float) -> socket.socket:
    """Connect to a name; blocks until the deadline at most while the queue of the listener is full.

    The kernel wakes those who wait in the order of their arrival. Trying again and again instead would lose against
    a user who floods the listener. Raises `BlockingIOError` when the queue stays full, `OSError` where nobody listens.
    """
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        patience = _TIMEOUT.pack(*divmod(int(seconds_until(deadline) * 1_000_000), 1_000_000))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        client.connect(f"\0{name}")
    except OSError:
        client.close()
        raise
    return client


def seconds_until(deadline: float) -> float:
    """Return how long to wait still, on the monotonic clock: a moment for a listener whose turn comes after the deadline."""
    return max(_MOMENT, deadline - time.monotonic())


def ask_each(prefix: str, ask: Callable[[str], Answer]) -> list[Answer]:
    """Return the answers to `ask` of all names that begin with `prefix` and have a listener, of any user.

    Asks in threads, so that a listener that does not answer delays no other. Empty where the kernel hides the names.
    """
    try:
        lines = _SOCKETS.read_text("utf-8", "replace").splitlines()[1:]
    except OSError:
        return []
    names = {words[7] for words in map(str.split, lines) if len(words) == 8}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(ask, [one[1:] for one in names if one.startswith(f"@{prefix}")]))


def holders(prefix: str) -> list[Peer]:
    """Return the processes that listen by names that begin with `prefix`; takes about a second where they are flooded."""
    deadline = time.monotonic() + 1

    def holder(name: str) -> Peer | None:
        with suppress(OSError), connect(name, deadline) as client:
            return peer_of(client)
        return None

    return [peer for peer in ask_each(prefix, holder) if peer]


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
                self._serve(client, peer_of(client))
        loop.remove_reader(self._socket)
        loop.call_later(_PAUSE, self._resume)
