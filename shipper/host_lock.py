"""Lets one agent of a host run on a machine, for each broker: the agent listens by a name that the next one finds taken.

An agent that takes over holds another of the eight names of the same host and broker, until the one before it ends.
"""

import errno
import hashlib
import logging
import time
from collections.abc import Iterator

from broker.app.exits import OperatorError
from broker.wire.subjects import own_token
from shipper.status.sockets import SERVICE_USER, Listener, Peer, connect, peer_of, trusted_users

__all__ = ["HostLock"]

_NAMES = 8  # all agents of a host but the newest are about to end
_ATTEMPTS, _PAUSE = 5, 0.01  # seconds; a name is bound a moment before its holder listens
_PATIENCE = 1.0  # seconds, with a holder whose queue is full
_UNKNOWN = Peer(0, -1)
logger = logging.getLogger(__name__)


class HostLock:
    """The names by which the agent of one host listens on this machine, one for each broker that it ships to."""

    def __init__(self, host: str, service: str = SERVICE_USER) -> None:
        """Hold nothing yet; `service` is the user whose agents root trusts."""
        self._host = host
        self._service = service
        self._held: dict[str, Listener] = {}

    def take(self, broker: str) -> None:
        """Hold the host; raises `OperatorError` while another agent of it lives on this machine."""
        if broker in self._held:
            return
        try:
            for name in self._names(broker):
                if holder := self._hold(broker, name):
                    self._judge(holder)
        except OSError as error:
            self._go_without(error)
        except OperatorError:
            self.close()
            raise

    def share(self, broker: str) -> None:
        """Hold the host beside the agent that holds it."""
        try:
            for name in self._names(broker):
                if broker in self._held:
                    return
                self._hold(broker, name)
        except OSError as error:
            self._go_without(error)

    def close(self) -> None:
        """Release the host."""
        for listener in self._held.values():
            listener.close()
        self._held.clear()

    def _names(self, broker: str) -> Iterator[str]:
        which = hashlib.sha256(f"{self._host} {broker}".encode()).hexdigest()[:16]
        for number in range(_NAMES):
            yield f"logship/shipper/{own_token(self._host)[:32]}/{which}/{number}"

    def _hold(self, broker: str, name: str) -> Peer | None:
        """Listen by a name, unless the broker is held already; return the process that holds the name instead."""
        for _ in range(_ATTEMPTS):
            if broker in self._held:
                return _holder(name)
            try:
                self._held[broker] = Listener(name, lambda client, _: client.close())
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return None
            if holder := _holder(name):
                return holder
            time.sleep(_PAUSE)
        return _UNKNOWN

    def _judge(self, holder: Peer) -> None:
        process = f"pid {holder.pid}" if holder.pid else "a process that cannot be seen from here"
        if holder.uid in trusted_users(self._service):
            raise OperatorError(
                f"logshipper ({process}) ships for {self._host} on this machine; "
                "stop it, or use --take-over"
            )
        logger.warning(
            "%s of user %s holds the name of %s's shipper on this machine; ignored, because it is no process of "
            "this user, root or the service",
            process,
            "unknown" if holder is _UNKNOWN else holder.user,
            self._host,
        )

    def _go_without(self, error: OSError) -> None:
        logger.warning(
            "cannot tell whether another shipper of %s runs on this machine: %s",
            self._host,
            error.strerror or error,
        )


def _holder(name: str) -> Peer | None:
    """Return the process that listens by a name; None where none does."""
    try:
        with connect(name, _PATIENCE) as client:
            return peer_of(client)
    except ConnectionRefusedError:
        return None
    except BlockingIOError:
        return _UNKNOWN
