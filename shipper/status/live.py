"""The status of a running agent, as JSON on an abstract unix socket: served by the agent, asked for by `logshipper status`.

Each side trusts only what the kernel says of the other: an agent answers root and its own user, and whoever asks
learns from the kernel which process and user answered.
"""

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from broker.wire.subjects import own_token
from shipper.status.report import HostReport
from shipper.status.sockets import (
    Listener,
    Peer,
    ask_each,
    seconds_until,
    trusted_users,
)

__all__ = ["Answers", "ask", "status_socket"]

_PREFIX = "logship/status/"
_MOST_CLIENTS = 8
_PATIENCE = 5.0  # seconds
_LARGEST = 16 * 1024 * 1024  # bytes, of an answer
logger = logging.getLogger(__name__)


@asynccontextmanager
async def status_socket(
    host: str, report: Callable[[], HostReport], patience: float = _PATIENCE
) -> AsyncIterator[None]:
    """Send the report to root and to processes of this user; a client has `patience` seconds to read it.

    An agent that cannot listen ships all the same.
    """
    sending: set[asyncio.Task[None]] = set()

    async def send(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.setblocking(False)
            document = json.dumps(report().document()).encode()
            async with asyncio.timeout(patience):
                await asyncio.get_running_loop().sock_sendall(client, document)

    def serve(client: socket.socket, peer: Peer) -> None:
        if peer.uid not in {0, os.geteuid()} or len(sending) >= _MOST_CLIENTS:
            client.close()
            return
        task = asyncio.create_task(send(client))
        sending.add(task)
        task.add_done_callback(sending.discard)

    try:
        listener = Listener(f"{_prefix(host)}{os.getpid()}", serve)
    except OSError as error:
        logger.warning("no live status: %s", error.strerror or error)
        yield
        return
    try:
        yield
    finally:
        listener.close()
        for task in sending:
            task.cancel()


@dataclass(frozen=True, slots=True)
class Answers:
    """What the agents on this machine answered; `broken` and `not_asked` are sentences on those that did not."""

    reports: list[HostReport] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    not_asked: list[str] = field(default_factory=list)


def ask(host: str = "", patience: float = _PATIENCE) -> Answers:
    """Return the status of the running agents of a host on this machine, of every host when it is empty.

    Blocks for about `patience` seconds at most. Root also asks the agents of the service's user. For each other user
    there is one sentence, whatever that user listens by.
    """
    deadline = time.monotonic() + patience
    prefix = _prefix(host) if host else _PREFIX

    def answer(name: str, client: socket.socket, peer: Peer) -> HostReport | Peer | str | None:
        is_agent = str(peer.pid) == name.rpartition("/")[2]
        return _answer(client, peer, deadline) if is_agent else None

    answers = ask_each(prefix, deadline, answer)
    reports = [one for one in answers if isinstance(one, HostReport) and host in {"", one.host}]
    others = {one.user for one in answers if isinstance(one, Peer)}
    problems = {one for one in answers if isinstance(one, str)}
    if any(isinstance(one, BlockingIOError) for one in answers):
        problems.add("an agent cannot be asked, because too many others ask it; try again")
    asker = "that user" if os.geteuid() == 0 else "root"
    return Answers(
        sorted(reports, key=lambda report: (report.host, report.pid)),
        sorted(problems),
        [f"agents of user {user} run here; ask as {asker} to see them" for user in sorted(others)],
    )


def _answer(client: socket.socket, peer: Peer, deadline: float) -> HostReport | Peer | str:
    """Return the report of the agent that is connected, its process where it is another user's, or a sentence."""
    if peer.uid != os.geteuid() and (os.geteuid() or peer.uid not in trusted_users()):
        return peer
    who = f"the agent with pid {peer.pid} of user {peer.user}"
    try:
        report = HostReport.decode(_read(client, deadline))
    except TimeoutError:
        return f"{who} does not answer; it is stuck"
    except ValueError:
        return f"{who} does not answer as this program does; is it of another version?"
    return replace(report, running=True, pid=peer.pid, user=peer.user)


def _read(client: socket.socket, deadline: float) -> bytes:
    """Return all that is sent; raises `ValueError` where it is too much, `TimeoutError` after the deadline."""
    answer = bytearray()
    client.settimeout(seconds_until(deadline))
    while piece := client.recv(1 << 16):
        answer += piece
        if len(answer) > _LARGEST:
            raise ValueError("too much")
        if time.monotonic() > deadline:
            raise TimeoutError
        client.settimeout(seconds_until(deadline))
    return bytes(answer)


def _prefix(host: str) -> str:
    return f"{_PREFIX}{own_token(host)[:64]}/"
