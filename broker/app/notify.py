"""Tells systemd how the program is (sd_notify(3), sd_watchdog_enabled(3)); silent where nobody asked for it.

Never waits and never fails: what the service manager cannot take now is sent the next time something is said.
"""

import os
import socket
from collections import deque
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress

from broker.app.printable import printable

__all__ = ["Notifier", "notifier_from"]

_MOST_UNSENT = 32
_LONGEST_STATUS = 200


class Notifier:
    """The service manager's socket; `address` is a path, or a name in the abstract namespace after `@` (no vsock)."""

    def __init__(self, address: str = "", watchdog: float | None = None) -> None:
        """Say nothing yet; without an address nothing is ever said. `watchdog` is its patience in seconds."""
        self.watchdog = watchdog
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        self._unsent: deque[bytes] = deque(maxlen=_MOST_UNSENT)
        self._status = ""

    @property
    def is_heard(self) -> bool:
        """Whether there is a service manager that we can speak to."""
        return self._address.startswith(("/", "\0"))

    def ready(self) -> None:
        """Say that the start, or a reload, is done."""
        self._send("READY=1")

    def reloading(self, monotonic: int) -> None:
        """Say that settings are being read again; `monotonic` is CLOCK_MONOTONIC in nanoseconds."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={monotonic // 1000}")

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """Say in one line how it goes, unless that was the last thing said."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={printable(text)[:_LONGEST_STATUS]}")

    def alive(self) -> None:
        """Keep the watchdog quiet."""
        if self.watchdog is not None:
            self._send("WATCHDOG=1")

    @contextmanager
    def excused(self, seconds: float) -> Iterator[None]:
        """Have the watchdog wait so long meanwhile, if it would not: for what blocks, and ends by itself."""
        before = self.watchdog
        if before is None or before >= seconds:
            yield
            return
        self._send(f"WATCHDOG_USEC={round(seconds * 1_000_000)}", "WATCHDOG=1")
        try:
            yield
        finally:
            self._send(f"WATCHDOG_USEC={round(before * 1_000_000)}", "WATCHDOG=1")

    def close(self) -> None:
        """Let go of the socket."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _send(self, *assignments: str) -> None:
        if not self.is_heard:
            return
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._unsent.append("\n".join(assignments).encode())
        with suppress(OSError):  # full, or not there just now
            while self._unsent:
                self._socket.sendto(self._unsent[0], self._address)
                self._unsent.popleft()


def notifier_from(environment: MutableMapping[str, str]) -> Notifier:
    """Return the notifier that the environment asks for, and take that out of it: it is for no child of ours.

    A watchdog is for the process that WATCHDOG_PID names, ours if it names none.
    """
    address = environment.pop("NOTIFY_SOCKET", "")
    microseconds = environment.pop("WATCHDOG_USEC", "")
    pid = environment.pop("WATCHDOG_PID", "")
    is_watched = microseconds.isdigit() and int(microseconds) > 0 and pid in {"", str(os.getpid())}
    return Notifier(address, int(microseconds) / 1_000_000 if is_watched else None)
