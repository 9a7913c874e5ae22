"""Free ports of the loopback interface, below those that Linux lends to outgoing connections.

So a killed program finds its port free at its next start, and no client connects to itself.
"""

import os
import random
import socket

_PORTS = range(16_384, 32_768)  # Linux lends 32768 and above (ip(7), ip_local_port_range)
_given: set[int] = set()  # a program may not have bound it yet, or was killed and starts again


def free_port() -> int:
    """Return a TCP port that was free a moment ago; use it at once. Raises OSError."""
    # each worker of pytest-xdist has ports of its own, and gives none twice
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = _PORTS[worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    # not seeded: programs that run side by side must not choose alike
    for port in random.SystemRandom().sample(own, 200):
        if port in _given:
            continue
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            return port
    raise OSError("no free port was found")
