"""The abstract unix sockets of the agents on this machine: the kernel frees each when its process ends, and leaves nothing on disk.

Any local user may bind and connect to any name, so both ends ask the kernel who the other one is, and trust few users.
"""

import asyncio
import os
import pwd
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SERVICE_USER", "Listener", "Peer", "connect", "listening", "peer_of", "trusted_users"]

SERVICE_USER = "logshipper"
"""The user of the systemd unit."""

_BACKLOG = 1024
_BATCH, _PAUSE = (
    128,
    0.05,
)  # connections, and seconds after them: a flood of connections costs little
_CREDENTIALS, _TIMEOUT = struct.Struct("3i"), struct.Struct("ll")
_SOCKETS = Path("/proc/net/unix")


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


def connect(name: str, patience: float) -> socket.socket:
    """Connect to a name; blocks for `patience` seconds at most while the queue of the listener is full.

    The kernel wakes those who wait in the order of their arrival. Trying again and again instead would lose against
    a user who floods the listener. Raises `ConnectionRefusedError` where nobody listens, `BlockingIOError` when
    the queue stays full, other `OSError`.
    """
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        seconds = _TIMEOUT.pack(int(patience), max(1, int(patience % 1 * 1_000_000)))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)
        client.connect(f"\0{name}")
    except OSError:
        client.close()
        raise
    return client


def listening(prefix: str) -> list[str]:
    """Return the names that begin with `prefix` and have a listener, of any user; none where the kernel hides them."""
    try:
        lines = _SOCKETS.read_text("utf-8", "replace").splitlines()[1:]
    except OSError:
        return []
    names = {words[7] for words in map(str.split, lines) if len(words) == 8}
    return sorted(name[1:] for name in names if name.startswith(f"@{prefix}"))


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
