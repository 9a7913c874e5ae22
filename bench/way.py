"""The way from a host to the centre: within a machine, or a slow link between two namespaces.

A line is a pair of veth with netem where the kernel has it, else `bench/tunnel.py`; either way its
two ends are the kernel's own TCP, with its slow start and its windows.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.support.processes import Processes, wait_until

_NEAR, _FAR = "wan0", "wan1"
_NEAR_ADDRESS, _FAR_ADDRESS = "10.213.0.1", "10.213.0.2"
_NETWORK = "/proc/thread-self/ns/net"
_CLONE_NEWNET = 0x40000000  # linux/sched.h


class Way(Protocol):
    """Where the centre is, seen from a host."""

    @property
    def address(self) -> str:
        """Where the centre's programs listen."""

    def at_the_host(self) -> AbstractContextManager[None]:
        """Run what is started within at the host's end."""


@dataclass(frozen=True, slots=True)
class _Home:
    address: str = "127.0.0.1"

    def at_the_host(self) -> AbstractContextManager[None]:
        return nullcontext()


HOME = _Home()
"""Host and centre are one machine."""


class Line:
    """The host in a network namespace of its own; the centre's is that of the caller.

    What runs at the host goes with the `processes` that hold its namespace, the line itself when it
    is closed.
    """

    address = _NEAR_ADDRESS

    def __init__(self, folder: Path, processes: Processes, delay: float) -> None:
        """Make the link; `delay` in seconds, each way.

        Raises OSError, CalledProcessError, `ProgramDied`.
        """
        _run("ip", "link", "set", "lo", "up")
        self._own = os.open(_NETWORK, os.O_RDONLY)
        holder = processes.start("namespace", ["unshare", "-n", "sleep", "infinity"])
        self._holder = holder.pid
        wait_until("the namespace is there", self._is_there, 10, [holder])
        self._host = os.open(f"/proc/{self._holder}/ns/net", os.O_RDONLY)
        self.kind = "netem"
        if not self._lay_netem(delay):
            self.kind = "a tunnel, for want of netem"
            self._lay_tunnel(folder, processes, delay)
        _run("ip", "addr", "add", f"{_NEAR_ADDRESS}/24", "dev", _NEAR)
        _run("ip", "link", "set", _NEAR, "mtu", "1500", "txqueuelen", "10000", "up")
        with self.at_the_host():
            _run("ip", "link", "set", "lo", "up")
            _run("ip", "addr", "add", f"{_FAR_ADDRESS}/24", "dev", _FAR)
            _run("ip", "link", "set", _FAR, "mtu", "1500", "txqueuelen", "10000", "up")

    def close(self) -> None:
        """Take the line away, so that another can be laid; also where its programs have ended."""
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

    def _is_there(self) -> bool:
        network = Path(f"/proc/{self._holder}/ns/net")
        return network.readlink() != Path(_NETWORK).readlink()

    def _lay_netem(self, delay: float) -> bool:
        _run("ip", "link", "add", _NEAR, "type", "veth", "peer", "name", _FAR)
        _run("ip", "link", "set", _FAR, "netns", str(self._holder))
        shaping = ["root", "netem", "delay", f"{delay * 1000:g}ms", "limit", "100000"]
        try:
            _run("tc", "qdisc", "add", "dev", _NEAR, *shaping)
            with self.at_the_host():
                _run("tc", "qdisc", "add", "dev", _FAR, *shaping)
        except (OSError, subprocess.CalledProcessError):  # no `tc` here, or no netem in the kernel
            _run("ip", "link", "del", _NEAR)
            return False
        return True

    def _lay_tunnel(self, folder: Path, processes: Processes, delay: float) -> None:
        ready = folder / "tunnel-is-ready"
        arguments = [_NEAR, _FAR, str(self._holder), str(delay), str(ready)]
        tunnel = processes.start("tunnel", [sys.executable, "-m", "bench.tunnel", *arguments])
        wait_until("the tunnel is there", ready.exists, 10, [tunnel])


def _enter(network: int) -> None:
    """Have this thread, and what it starts, use another network namespace (setns(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(network, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
