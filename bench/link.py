"""A link between two network namespaces that delays every packet: real TCP over a long way.

A program carries packets between two TUN devices and holds each for the delay. It loses none and
keeps their order; it is no faster than about 50 MB/s. Both ends are the kernel's own TCP, with its
slow start and its windows.
"""

import ctypes
import errno
import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import Processes, wait_until

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
_MOST = 65535
_NEAR, _FAR = "wan0", "wan1"
_NEAR_ADDRESS, _FAR_ADDRESS = "10.213.0.1", "10.213.0.2"
_NETWORK = "/proc/thread-self/ns/net"
_CLONE_NEWNET = 0x40000000  # linux/sched.h


class Link:
    """The host in a network namespace of its own; the centre's is that of the caller.

    Its programs go with the `processes` that hold the namespace.
    """

    address = _NEAR_ADDRESS
    """Where the centre's programs listen."""

    def __init__(self, folder: Path, processes: Processes, delay: float) -> None:
        """Make the link; `delay` in seconds, each way.

        Raises OSError, CalledProcessError, `ProgramDied`.
        """
        _run("ip", "link", "set", "lo", "up")
        self._own = os.open(_NETWORK, os.O_RDONLY)
        holder = processes.start("namespace", ["unshare", "-n", "sleep", "infinity"])
        network = Path(f"/proc/{holder.pid}/ns/net")
        is_there = lambda: network.readlink() != Path(_NETWORK).readlink()  # noqa: E731
        wait_until("the namespace is there", is_there, 10, [holder])
        self._host = os.open(network, os.O_RDONLY)
        ready = folder / "tunnel-is-ready"
        arguments = [str(holder.pid), str(delay), str(ready)]
        tunnel = processes.start("tunnel", [sys.executable, "-m", "bench.link", *arguments])
        wait_until("the tunnel is there", ready.exists, 10, [tunnel])
        _configure(_NEAR, _NEAR_ADDRESS)
        with self.at_the_host():
            _run("ip", "link", "set", "lo", "up")
            _configure(_FAR, _FAR_ADDRESS)

    def close(self) -> None:
        """Take the link away, so that another can be made; also where its programs have ended."""
        subprocess.run(["ip", "link", "del", _NEAR], check=False, capture_output=True)
        for network in (self._own, self._host):
            os.close(network)

    @contextmanager
    def at_the_host(self) -> Iterator[None]:
        """Run what is started within at the host's end."""
        _enter(self._host)
        try:
            yield
        finally:
            _enter(self._own)


def _configure(device: str, address: str) -> None:
    _run("ip", "addr", "add", f"{address}/24", "dev", device)
    _run("ip", "link", "set", device, "mtu", "1500", "txqueuelen", "10000", "up")


def _enter(network: int) -> None:
    """Have this thread, and what it starts, use another network namespace (setns(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(network, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


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


def main(namespace: str, delay: float, ready: Path) -> None:
    """Make both devices, move one to the namespace of a process, and carry packets for ever.

    `delay` in seconds, each way; `ready` is made when the devices are there.
    """
    one, other = _device(_NEAR), _device(_FAR)
    _run("ip", "link", "set", _FAR, "netns", namespace)
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
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
