"""What a running agent says of itself on this machine: a JSON document to whoever connects and could end it anyway.

An abstract unix socket, so that nothing is written to a disk and nothing stays when the agent is killed. Costs nothing
while nobody asks, and little whatever those who ask may do.
"""

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from broker.running.clients import FRESH, Clients
from broker.subjects import own_token
from shipper.telling.report import HostReport

__all__ = ["Live", "NoAnswer", "ask"]

_PREFIX = "logship/status/"
_SOCKETS = Path("/proc/net/unix")
_MOST_CLIENTS = 8
_PATIENCE = 5.0  # seconds
_LARGEST = 256 * 1024 * 1024
_CREDENTIALS = struct.Struct("3i")
logger = logging.getLogger(__name__)


class NoAnswer(Exception):
    """An agent is there and does not answer: it is stuck, or of another version."""


class Live:
    """Answers root, and whoever runs as the agent does, while it is entered."""

    def __init__(
        self, host: str, report: Callable[[], HostReport], patience: float = _PATIENCE
    ) -> None:
        """Remember for which host to listen, and what to say; a client has `patience` seconds to take it."""
        self._name = f"{_prefix(host)}{os.getpid()}"
        self._report = report
        self._server: asyncio.Server | None = None
        self._clients = Clients(_MOST_CLIENTS, patience)
        self._document = b""
        self._made = float("-inf")

    async def __aenter__(self) -> "Live":
        """Listen; an agent that cannot ships all the same."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.bind(f"\0{self._name}")
            listener.listen(_MOST_CLIENTS)
        except OSError as error:
            listener.close()
            logger.warning("no live status: %s", error.strerror or error)
            return self
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._clients.abort()

    async def _serve(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if _user_of(writer.get_extra_info("socket")) in {0, os.geteuid()}:
            await self._clients.serve(writer, self._say)
        else:
            writer.transport.abort()

    async def _say(self) -> bytes:
        now = asyncio.get_running_loop().time()
        if now - self._made > FRESH:
            self._document = json.dumps(self._report().document()).encode()
            self._made = now
        return self._document


def ask(host: str = "", patience: float = _PATIENCE) -> list[HostReport]:
    """Return what the running agents of a host on this machine say of themselves, of every host when it is empty.

    Blocks, `patience` seconds at most for each piece. Raises `NoAnswer` when one is there and does not answer, and
    PermissionError when it is not for us to ask.
    """
    reports = [_ask(name, patience) for name in sorted(_names(_prefix(host) if host else _PREFIX))]
    return [one for one in reports if one is not None and host in {"", one.host}]


def _ask(name: str, patience: float) -> HostReport | None:
    pid = name.rpartition("/")[2]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(patience)
        try:
            client.connect(f"\0{name}")
            if os.geteuid() not in {
                0,
                _user_of(client),
            }:  # it would not answer, or is no agent of ours
                raise PermissionError(f"the agent with pid {pid} is another user's; ask as root")
            said = b"".join(_pieces(client))
        except ConnectionError:
            return None  # it ended meanwhile
        except TimeoutError:
            raise NoAnswer(f"the agent with pid {pid} does not answer; it is stuck") from None
    try:
        return HostReport.from_document(json.loads(said))
    except ValueError:
        raise NoAnswer(
            f"the agent with pid {pid} does not answer as this program does; is it of another version?"
        ) from None


def _names(prefix: str) -> set[str]:
    """Return the names of listening sockets that begin so, of all users."""
    words = [line.split() for line in _SOCKETS.read_text("utf-8", "replace").splitlines()[1:]]
    names = {one[-1][1:] for one in words if len(one) == 8 and one[-1].startswith("@")}
    return {name for name in names if name.startswith(prefix)}


def _prefix(host: str) -> str:
    return f"{_PREFIX}{own_token(host)[:64]}/"


def _user_of(peer: socket.socket) -> int:
    """Return as which user the other end runs, or ran when it began to listen."""
    told = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(told)[1]
    return user


def _pieces(client: socket.socket) -> Iterator[bytes]:
    size = 0
    while (piece := client.recv(1 << 16)) and size < _LARGEST:
        size += len(piece)
        yield piece
