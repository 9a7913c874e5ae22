"""What a running agent says of itself on this machine: a JSON document to whoever connects and could end it anyway.

An abstract unix socket, so that nothing is written to a disk and nothing stays when the agent is killed. Costs nothing
while nobody asks, and little whatever those who ask may do. Any local user may bind such a name: whoever asks is told by
the kernel who answers, and waits for all of them together only so long.
"""

import asyncio
import json
import logging
import os
import pwd
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from broker.app.clients import FRESH, Clients
from broker.wire.subjects import own_token
from shipper.host_lock import believed_users, peer_of
from shipper.status.report import HostReport

__all__ = ["Heard", "Live", "ask"]

_PREFIX = "logship/status/"
_SOCKETS = Path("/proc/net/unix")
_MOST_CLIENTS = 8
_BACKLOG, _BATCH, _PAUSE = 1024, 128, 0.05  # seconds; who connects all the time costs little
_PATIENCE = 5.0  # seconds
_LARGEST = 16 * 1024 * 1024  # bytes, of an answer
_MOST_AGENTS = 16  # of a user that are asked
_NEXT_TRY = 0.02  # seconds
logger = logging.getLogger(__name__)


class Live:
    """Answers root, and whoever runs as the agent does, while it is entered."""

    def __init__(
        self, host: str, report: Callable[[], HostReport], patience: float = _PATIENCE
    ) -> None:
        """Remember for which host to listen, and what to say; a client has `patience` seconds to take it."""
        self._name = f"{_prefix(host)}{os.getpid()}"
        self._report = report
        self._listener: socket.socket | None = None
        self._clients = Clients(_MOST_CLIENTS, patience)
        self._serving: set[asyncio.Task[None]] = set()
        self._document = b""
        self._made = float("-inf")

    async def __aenter__(self) -> "Live":
        """Listen; an agent that cannot ships all the same."""
        listener = _socket()
        try:
            listener.bind(f"\0{self._name}")
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            logger.warning("no live status: %s", error.strerror or error)
            return self
        self._listener = listener
        self._listen()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop listening."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
            self._clients.abort()

    def _listen(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener, self._let_in, self._listener)

    def _let_in(self, listener: socket.socket) -> None:
        """Take in who asks, so that there is room for the next; whoever may not ask is let go at once."""
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            for _ in range(_BATCH):
                client = listener.accept()[0]
                if peer_of(client)[1] in _trusted() and len(self._serving) < _MOST_CLIENTS:
                    serving = loop.create_task(self._serve(client))
                    self._serving.add(serving)
                    serving.add_done_callback(self._serving.discard)
                else:
                    client.close()
        loop.remove_reader(listener)
        loop.call_later(_PAUSE, self._listen)

    async def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            _, writer = await asyncio.open_unix_connection(sock=client)
            await self._clients.serve(writer, self._say)

    async def _say(self) -> bytes:
        now = asyncio.get_running_loop().time()
        if now - self._made > FRESH:
            self._document = json.dumps(self._report().document()).encode()
            self._made = now
        return self._document


@dataclass(frozen=True, slots=True)
class Heard:
    """What agents on this machine said: `broken` has a sentence for each that did not answer, `not_asked` for other users'."""

    reports: list[HostReport] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    not_asked: list[str] = field(default_factory=list)


def ask(host: str = "", patience: float = _PATIENCE) -> Heard:
    """Return what the running agents of a host on this machine say of themselves, of every host when it is empty.

    Blocks, at most `patience` seconds in all. Root asks the agents of the service's user, too; process and user are the kernel's words.
    """
    names = sorted(_names(_prefix(host) if host else _PREFIX))
    return asyncio.run(_Asking(host).ask(names, patience)) if names else Heard()


class _Asking:
    """Asks all of them at once, so that none keeps another one from being heard."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._heard = Heard()
        self._asked: Counter[int] = Counter()

    async def ask(self, names: list[str], patience: float) -> Heard:
        asking = [asyncio.create_task(self._ask(name)) for name in names]
        _, late = await asyncio.wait(asking, timeout=patience)
        for one in late:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        self._heard.reports.sort(key=lambda report: (report.host, report.pid))
        return self._heard

    async def _ask(self, name: str) -> None:
        pid = name.rpartition("/")[2]
        who = ""
        try:
            with await _connected(name) as client:
                process, user = peer_of(client)
                if str(process) != pid or self._asked[user] >= _MOST_AGENTS:
                    return  # no agent, or one user's way to fill the screen
                self._asked[user] += 1
                who = f"the agent with pid {process} of user {_name_of(user)}"
                if not _may_ask(user):  # it would not answer, or is no agent of ours
                    asker = "that user" if os.geteuid() == 0 else "root"
                    self._heard.not_asked.append(f"{who} is another user's; ask as {asker}")
                    return
                said = await _read(client)
            self._take(_report(said), process, user)
        except asyncio.CancelledError:
            if who:
                self._heard.broken.append(f"{who} does not answer; it is stuck")
            raise
        except OSError:
            return  # it ended meanwhile
        except ValueError:
            self._heard.broken.append(
                f"{who} does not answer as this program does; is it of another version?"
            )

    def _take(self, report: HostReport, process: int, user: int) -> None:
        if self._host in {"", report.host}:
            self._heard.reports.append(
                replace(report, running=True, pid=process, user=_name_of(user))
            )


async def _connected(name: str) -> socket.socket:
    """Connect, again while more wait there than may; raises OSError where nobody listens."""
    while True:
        client = _socket()
        try:
            client.connect(f"\0{name}")
        except BlockingIOError:
            client.close()
        except OSError:
            client.close()
            raise
        else:
            return client
        await asyncio.sleep(_NEXT_TRY)


async def _read(client: socket.socket) -> bytes:
    """Return all that is said; raises ValueError where it is too much."""
    said = bytearray()
    while piece := await asyncio.get_running_loop().sock_recv(client, 1 << 16):
        said += piece
        if len(said) > _LARGEST:
            raise ValueError("too much")
    return bytes(said)


def _report(said: bytes) -> HostReport:
    try:
        return HostReport.from_document(json.loads(said))
    except RecursionError:
        raise ValueError("too deep") from None


def _names(prefix: str) -> set[str]:
    """Return the names of listening sockets that begin so, of all users."""
    try:
        words = [line.split() for line in _SOCKETS.read_text("utf-8", "replace").splitlines()[1:]]
    except OSError:
        return set()  # hidden from us, so nobody can be asked
    names = {one[-1][1:] for one in words if len(one) == 8 and one[-1].startswith("@")}
    return {name for name in names if name.startswith(prefix)}


def _prefix(host: str) -> str:
    return f"{_PREFIX}{own_token(host)[:64]}/"


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)


def _trusted() -> set[int]:
    return {0, os.geteuid()}


def _may_ask(user: int) -> bool:
    """Whether a process of a user is taken for an agent, and would answer: any user may listen by the name of one."""
    return user == os.geteuid() or (os.geteuid() == 0 and user in believed_users())


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
