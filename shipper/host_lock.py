"""Lets one agent of a host run on a machine, for each broker: an agent listens by a name of the two, and the next one finds it.

Two agents that start at the same moment may both miss each other; then the broker ends the older one.
"""

import hashlib
import logging
import secrets
import time

from broker.app.exits import OperatorError
from broker.wire.subjects import own_token
from shipper.status.sockets import SERVICE_USER, Listener, Peer, ask_each, trusted_users

__all__ = ["HostLock"]

_PATIENCE = 1.0  # seconds, with listeners whose queue is full
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
        deadline = time.monotonic() + _PATIENCE
        for holder in ask_each(self._prefix(broker), deadline, lambda _, __, peer: peer):
            if isinstance(holder, Peer) and holder.uid in trusted_users(self._service):
                process = f"pid {holder.pid}" if holder.pid else "in another namespace"
                raise OperatorError(
                    f"logshipper ({process}) ships for {self._host} on this machine; "
                    "stop it, or use --take-over"
                )
        self.share(broker)

    def share(self, broker: str) -> None:
        """Hold the host beside the agent that holds it."""
        if broker in self._held:
            return
        name = f"{self._prefix(broker)}{secrets.token_hex(4)}"
        try:
            self._held[broker] = Listener(name, lambda client, _: client.close())
        except OSError as error:
            logger.warning(
                "other shippers of %s on this machine will not find this one: %s",
                self._host,
                error.strerror or error,
            )

    def close(self) -> None:
        """Release the host."""
        for listener in self._held.values():
            listener.close()
        self._held.clear()

    def _prefix(self, broker: str) -> str:
        which = hashlib.sha256(f"{self._host} {broker}".encode()).hexdigest()[:16]
        return f"logship/shipper/{own_token(self._host)[:32]}/{which}/"
