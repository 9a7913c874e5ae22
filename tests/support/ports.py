"""Free ports of the loopback interface, below those that the kernel lends to outgoing connections.

So a program that was killed finds its port free at its next start, and a client that looks for it
meanwhile never meets itself: a connection from a port to that same port succeeds.
"""

import random
import socket

_PORTS = range(16_384, 32_768)  # Linux lends 32768 and above (ip(7), ip_local_port_range)


def free_port() -> int:
    """Return a TCP port that was free a moment ago; nothing keeps it, so use it at once.

    Raises OSError.
    """
    # not seeded: programs that run side by side must not choose alike
    for port in random.SystemRandom().sample(_PORTS, 100):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port was found")
