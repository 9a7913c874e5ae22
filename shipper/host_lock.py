"""Lets one agent of a host run on a machine: abstract unix sockets, which the kernel frees when their process ends.

A name stands for a host at one broker, so a host may ship to two. Whoever takes over stands beside the one before, in
another place of the same name. Any local user may bind such a name: only root, who runs as this agent does and, for root,
the user of the systemd unit are believed.
"""

import asyncio
import errno
import hashlib
import logging
import os
import pwd
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass

from broker.app.exits import OperatorError
from broker.wire.subjects import own_token

__all__ = ["SERVICE_USER", "HostLock", "believed_users", "peer_of"]

SERVICE_USER = "logshipper"
"""The user of the systemd unit."""

_PLACES = 8  # agents of one host that are told apart: all but the newest are about to end
_ATTEMPTS, _PAUSE = 5, 0.01  # seconds; a name is bound a moment before its holder can be asked
_BACKLOG = 4096  # who ask in one second
_ANSWER_EVERY = 1.0  # seconds; who connects all the time costs nothing
_CREDENTIALS = struct.Struct("3i")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Holder:
    """The process that holds a name; None for both where it does not tell."""

    pid: int | None = None
    user: int | None = None


class HostLock:
    """What the running agent of a host holds on this machine, for each broker by what tells it from others."""

    def __init__(self, host: str, service: str = SERVICE_USER) -> None:
        """Remember the host, and as which user systemd runs shippers; nothing is held yet."""
        self._host = host
        self._service = service
        self._held: dict[str, socket.socket] = {}

    def take(self, broker: str) -> None:
        """Hold the host; raises `OperatorError` while another agent of it lives on this machine."""
        if broker in self._held:
            return
        try:
            for place in range(_PLACES):
                self._take(broker, place)
        except OSError as error:
            self._go_without(error)
        except OperatorError:
            self.close()
            raise

    def _take(self, broker: str, place: int) -> None:
        name = self._name(broker, place)
        holder = _holder(name) if broker in self._held else self._hold(broker, name)
        if holder is None:
            return
        process = f"pid {holder.pid}" if holder.pid else "a process that cannot be seen from here"
        if holder.user in believed_users(self._service):
            raise OperatorError(
                f"logshipper ({process}) ships for {self._host} on this machine; "
                "stop it, or use --take-over"
            )
        logger.warning(
            "%s of user %s holds the name of %s's shipper on this machine; going on, for it is no process of this "
            "user, root or the service",
            process,
            "unknown" if holder.user is None else holder.user,
            self._host,
        )

    def share(self, broker: str) -> None:
        """Hold the host beside whoever holds it."""
        if broker in self._held:
            return
        try:
            for place in range(_PLACES):
                if self._hold(broker, self._name(broker, place)) is None:
                    return
        except OSError as error:
            self._go_without(error)

    def close(self) -> None:
        """Let go of the host."""
        for listener in self._held.values():
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        self._held.clear()

    def _hold(self, broker: str, name: str) -> _Holder | None:
        """Hold a name, or return who holds it."""
        for _ in range(_ATTEMPTS):
            try:
                self._held[broker] = _bound(name)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                self._answer(self._held[broker])
                return None
            if holder := _holder(name):
                return holder
            time.sleep(_PAUSE)
        return _Holder()

    def _answer(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._let_in, listener)

    def _let_in(self, listener: socket.socket) -> None:
        """Take in who asks, so that there is room for the next; the kernel has told them who we are."""
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            for _ in range(_BACKLOG):
                listener.accept()[0].close()
        loop.remove_reader(listener)
        loop.call_later(_ANSWER_EVERY, self._answer, listener)

    def _name(self, broker: str, place: int) -> str:
        which = hashlib.sha256(f"{self._host} {broker}".encode()).hexdigest()[:16]
        return f"\0logship/shipper/{own_token(self._host)[:32]}/{which}/{place}"

    def _go_without(self, error: OSError) -> None:
        logger.warning(
            "cannot tell whether another shipper of %s runs on this machine: %s",
            self._host,
            error.strerror or error,
        )


def believed_users(service: str = SERVICE_USER) -> set[int]:
    """Return whose processes are taken for agents: root's, those of this user and, by root, the service's."""
    believed = {0, os.geteuid()}
    if os.geteuid() == 0:
        with suppress(KeyError):
            believed.add(pwd.getpwnam(service).pw_uid)
    return believed


def peer_of(connected: socket.socket) -> tuple[int, int]:
    """Return the process and the user of the other end, by the kernel's word, as it is or was when it began to listen.

    The process is 0 where it cannot be seen from here.
    """
    told = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(told)
    return pid, user


def _bound(name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.bind(name)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _holder(name: str) -> _Holder | None:
    """Return who listens by a name, as the kernel tells; None when nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
        try:
            client.connect(name)
        except ConnectionRefusedError:
            return None
        except BlockingIOError:
            return _Holder()
        pid, user = peer_of(client)
    return _Holder(pid or None, user)
