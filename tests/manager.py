"""A service manager as a program sees one: a socket that receives what systemd would."""

import socket
from pathlib import Path


class Manager:
    """The notifications that a service manager receives, in order."""

    def __init__(self, folder: Path, prefix: str = "") -> None:
        """Listen at a path in `folder`, with the prefix `@` in the abstract namespace."""
        self.address = f"{prefix}{folder / 'notify'}"
        self.received: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{self.address[1:]}" if prefix else self.address)
        self._socket.setblocking(False)

    def listen(self) -> list[str]:
        while True:
            try:
                self.received.append(self._socket.recv(65536).decode())
            except BlockingIOError:
                return self.received

    def has_received(self, text: str) -> bool:
        return any(text in said for said in self.listen())

    def forget(self) -> None:
        self.listen()
        self.received.clear()

    def close(self) -> None:
        self._socket.close()
