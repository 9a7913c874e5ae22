"""The socket beside the saved positions on which a running agent says how it is: a JSON document to whoever connects.

Costs nothing while nobody asks, and little whatever those who ask may do. A path may be too long for a socket, so it is
reached through a descriptor of its folder.
"""

import asyncio
import json
import logging
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from broker.folder import open_folder
from broker.running.clients import FRESH, Clients
from shipper.telling.report import HostReport

__all__ = ["SOCKET_NAME", "Live", "ask"]

SOCKET_NAME = "agent.sock"
_MODE = 0o660
_MOST_CLIENTS = 8
_PATIENCE = 5.0  # seconds
_LARGEST = 256 * 1024 * 1024
logger = logging.getLogger(__name__)


class Live:
    """Answers while it is entered; of two agents of one folder the newer one answers."""

    def __init__(
        self, folder: Path, report: Callable[[], HostReport], patience: float = _PATIENCE
    ) -> None:
        """Remember where to listen, and what to say; a client has `patience` seconds to take it."""
        self._folder = folder
        self._report = report
        self._server: asyncio.Server | None = None
        self._inode = 0
        self._clients = Clients(_MOST_CLIENTS, patience)
        self._document = b""
        self._made = float("-inf")

    async def __aenter__(self) -> "Live":
        """Listen; an agent whose folder allows no socket ships all the same."""
        try:
            listener = self._bind()
        except OSError as error:
            logger.warning(
                "no live status: cannot listen in %s: %s", self._folder, error.strerror or error
            )
            return self
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop listening, and leave nothing behind."""
        if self._server is None:
            return
        self._server.close()
        self._clients.abort()
        path = self._folder / SOCKET_NAME
        with suppress(OSError):
            if path.stat().st_ino == self._inode:  # else a newer agent listens there
                path.unlink()

    def _bind(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        temporary = f"{SOCKET_NAME}.{os.getpid()}"
        try:
            with _reached(self._folder) as folder:
                with suppress(FileNotFoundError):
                    os.unlink(f"{folder}/{temporary}")  # noqa: PTH108 - through the descriptor
                os.fchmod(listener.fileno(), _MODE)  # what bind(2) makes has no more than this
                listener.bind(f"{folder}/{temporary}")
                _widen(f"{folder}/{temporary}")  # and no less
                listener.listen(_MOST_CLIENTS)
                # a socket that a killed agent left, or that of an older one, is replaced without a moment between
                os.rename(f"{folder}/{temporary}", f"{folder}/{SOCKET_NAME}")  # noqa: PTH104
                self._inode = os.stat(f"{folder}/{SOCKET_NAME}").st_ino  # noqa: PTH116
        except OSError:
            listener.close()
            raise
        return listener

    async def _serve(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._clients.serve(writer, self._say)

    async def _say(self) -> bytes:
        now = asyncio.get_running_loop().time()
        if now - self._made > FRESH:
            self._document = json.dumps(self._report().document()).encode()
            self._made = now
        return self._document


def ask(folder: Path, patience: float = _PATIENCE) -> HostReport | None:
    """Return what the agent of a folder says of itself; None when none runs there.

    Blocks, `patience` seconds at most for each piece. Raises TimeoutError when there is one and it does not answer, and
    PermissionError when it is not for us to ask.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(patience)
        try:
            with _reached(folder) as reached:
                client.connect(f"{reached}/{SOCKET_NAME}")
            said = b"".join(_pieces(client))
        except (FileNotFoundError, ConnectionError, NotADirectoryError):
            return None  # never there, or the socket of an agent that was killed
    if not said:
        raise TimeoutError
    return HostReport.from_document(json.loads(said))


def _pieces(client: socket.socket) -> Iterator[bytes]:
    size = 0
    while (piece := client.recv(1 << 16)) and size < _LARGEST:
        size += len(piece)
        yield piece


@contextmanager
def _reached(folder: Path) -> Iterator[str]:
    with open_folder(folder) as opened:
        yield f"/proc/self/fd/{opened.descriptor}"


def _widen(path: str) -> None:
    """Give the socket at a path its mode, and nothing that somebody has put in its place."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            os.chmod(f"/proc/self/fd/{descriptor}", _MODE)  # noqa: PTH101 - fchmod(2) takes no such one
    finally:
        os.close(descriptor)
