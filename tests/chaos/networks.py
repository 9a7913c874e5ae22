"""Several machines on one: a network for each, with links that can lose packets.

Only within own namespaces. Losses of a line add up: each lasts until its fault takes it back. Needs
`ip`, `ss`, and `tc` with clsact and bpf.
"""

import functools
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock

from nats_logship.app.address import Address

_CLIENTS, _ROUTES = "10.99.0", "10.98.0"
_LOAD, _RETURN, _JUMP_IF_AT_LEAST = 0x20, 0x06, 0x35  # linux/bpf_common.h
_RANDOM = 0xFFFFF000 + 56  # SKF_AD_OFF + SKF_AD_RANDOM: the address of a random number
_LOSE, _GO_ON = 2, 0xFFFFFFFF  # TC_ACT_SHOT, TC_ACT_UNSPEC


def _bytecode(losses: Sequence[float]) -> str:
    """Return a filter, as tc takes it, that loses shares of the packets, each by itself."""
    steps: list[tuple[int, int, int, int]] = []
    for share in losses:
        if share < 1:
            steps += [(_LOAD, 0, 0, _RANDOM), (_JUMP_IF_AT_LEAST, 1, 0, int(share * 2**32))]
        steps.append((_RETURN, 0, 0, _LOSE))
    steps.append((_RETURN, 0, 0, _GO_ON))
    return f"{len(steps)}," + ",".join(" ".join(map(str, step)) for step in steps)


@dataclass(slots=True, eq=False)
class Way:
    """One direction of a line. Packets are lost on the way, and neither end notices."""

    _filtered: tuple[str, ...]
    """Where packets can be lost, for tc."""
    _losses: list[float] = field(default_factory=list)
    _lock: RLock = field(default_factory=RLock)

    @contextmanager
    def losing(self, share: float = 1.0) -> Iterator[None]:
        """Lose such a share of the packets of IP meanwhile."""
        with self._lock:
            self._losses.append(share)
            self._show()
        yield
        with self._lock:
            self._losses.remove(share)
            self._show()

    def _show(self) -> None:
        rule = (*self._filtered, "protocol", "ip", "pref", "1")
        if self._losses:
            arguments = ("handle", "1", "bpf", "direct-action", "bytecode", _bytecode(self._losses))
            _run("tc", "filter", "replace", *rule, *arguments)
        else:
            _run("tc", "filter", "del", *rule)


@dataclass(slots=True, eq=False)
class Line:
    """What connects a machine with one of the nets, seen from the machine."""

    net: str
    device: str
    within: tuple[str, ...]
    inward: Way
    outward: Way

    @contextmanager
    def losing(self, share: float = 1.0) -> Iterator[None]:
        with self.inward.losing(share), self.outward.losing(share):
            yield

    def reset(self) -> None:
        """End all connections of the machine over this line; the other ends receive a reset."""
        others = f"dst {self.net}.0/24 and not dst {self.net}.{self.device[1:]}"
        _run(*self.within, "ss", "--no-header", "--kill", "--tcp", others, quiet=True)


@dataclass(frozen=True, slots=True)
class Machine:
    """10.99.0.<number> for clients, 10.98.0.<number> for the brokers among themselves."""

    name: str
    number: int
    clients: Line = field(compare=False, repr=False)
    routes: Line = field(compare=False, repr=False)

    @property
    def within(self) -> tuple[str, ...]:
        return _within(self.name)

    @property
    def address(self) -> str:
        return f"{_CLIENTS}.{self.number}"

    @property
    def client(self) -> Address:
        return Address(self.address, 4222)

    @property
    def route(self) -> Address:
        return Address(f"{_ROUTES}.{self.number}", 6222)


@functools.cache
def can_shape() -> bool:
    """Whether the kernel and `tc` have what it takes to lose packets."""
    rule = ("tc", "filter", "add", "dev", "lo", "ingress", "protocol", "ip", "bpf", "direct-action")
    tries = (
        ["tc", "qdisc", "add", "dev", "lo", "clsact"],
        (*rule, "bytecode", "1,6 0 0 4294967295"),
        ["tc", "qdisc", "del", "dev", "lo", "clsact"],
    )
    try:
        return all(not subprocess.run(one, capture_output=True).returncode for one in tries)
    except FileNotFoundError:
        return False


def machines(names: Sequence[str]) -> dict[str, Machine]:
    """Make the networks; the caller is at the clients' one, as 10.99.0.254."""
    Path("/run/netns").mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "tmpfs", "/run/netns")
    _run("ip", "link", "set", "lo", "up")
    for bridge in ("clients", "routes"):
        # without an address of its own, a bridge changes its address when a port is added
        own = f"02:00:00:00:00:{ord(bridge[0]):02x}"
        _run("ip", "link", "add", bridge, "address", own, "type", "bridge")
        _run("ip", "link", "set", bridge, "up")
    _run("ip", "addr", "add", f"{_CLIENTS}.254/24", "dev", "clients")
    return {name: _machine(name, number) for number, name in enumerate(names, 1)}


def _machine(name: str, number: int) -> Machine:
    _run("ip", "netns", "add", name)
    _run("ip", "-n", name, "link", "set", "lo", "up")
    clients = _line(name, number, "clients", _CLIENTS)
    return Machine(name, number, clients, _line(name, number, "routes", _ROUTES))


def _line(name: str, number: int, bridge: str, net: str) -> Line:
    outer, inner = f"{bridge[0]}{number}", f"{bridge[0]}in"
    _run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
    _run("ip", "link", "set", outer, "master", bridge)
    _run("ip", "link", "set", outer, "up")
    _run("ip", "-n", name, "addr", "add", f"{net}.{number}/24", "dev", inner)
    _run("ip", "-n", name, "link", "set", inner, "up")
    if can_shape():
        _run("tc", "qdisc", "add", "dev", outer, "clsact")
    ways = (Way(("dev", outer, "egress")), Way(("dev", outer, "ingress")))
    return Line(net, outer, _within(name), *ways)


def _within(name: str) -> tuple[str, ...]:
    return ("nsenter", f"--net=/run/netns/{name}", "--")


def _run(*arguments: str, quiet: bool = False) -> None:
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL if quiet else None)
