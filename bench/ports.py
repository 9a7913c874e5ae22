"""Free ports of the loopback interface."""

import socket

__all__ = ["free_port"]


def free_port() -> int:
    """Return a TCP port that was free a moment ago; nothing keeps it, so use it at once."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
