"""A link between two network namespaces that delays every packet: real TCP over a long way.

Where the kernel has netem the bench leaves this to it. This is the substitute: a program that
carries packets between two TUN devices and holds each for the delay. It loses none and keeps their
order; it is no faster than about 50 MB/s.
"""

import errno
import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
_MOST = 65535


class _Way:
    """One direction; packets wait in it for their time."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self._target = target
        self._waiting: deque[tuple[float, bytes]] = deque()

    def take(self, due: float) -> None:
        """Read what is there."""
        try:
            while True:
                self._waiting.append((due, os.read(self.source, _MOST)))
        except BlockingIOError:
            return

    def pass_on(self, now: float) -> None:
        """Write what has waited long enough."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= now:
            try:
                os.write(self._target, waiting.popleft()[1])
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                # the kernel begins to talk as soon as one end is up; the other one is not yet, and
                # takes nothing

    @property
    def due(self) -> float:
        """When the next packet is to be passed on."""
        return self._waiting[0][0] if self._waiting else float("inf")


def _device(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(
        descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI)
    )
    return descriptor


def main(near: str, far: str, namespace: str, delay: float, ready: Path) -> None:
    """Make both devices, move `far` to the namespace of a process, and carry packets for ever.

    `delay` in seconds, each way; `ready` is made when the devices are there.
    """
    one, other = _device(near), _device(far)
    subprocess.run(["ip", "link", "set", far, "netns", namespace], check=True)
    ready.touch()
    ways = [_Way(one, other), _Way(other, one)]
    while True:
        now = time.monotonic()
        wait = max(0.0, min(1.0, min(way.due for way in ways) - now))
        readable, _, _ = select.select([one, other], [], [], wait)
        now = time.monotonic()
        for way in ways:
            if way.source in readable:
                way.take(now + delay)
            way.pass_on(now)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), Path(sys.argv[5]))
