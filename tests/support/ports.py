"""Free ports of the loopback interface, below those that Linux lends to outgoing connections.

So a killed program finds its port free at its next start, and no client connects to itself.
"""

import random
import socket

_PORTS = range(16_384, 32_768)  # Linux lends 32768 and above (ip(7), ip_local_port_range)


def free_port() -> int:
    """Return a TCP port that was free a moment ago; use it at once. Raises OSError."""
    # not seeded: programs that run side by side must not choose alike
    for port in random.SystemRandom().sample(_PORTS, 100):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port was found")
