"""Three machines on one: a network of its own for each, with a line to clients and one to the other servers, that can be cut.

Only within namespaces of the caller's own (`unshare --net --mount`), where nothing is left of it afterwards.
"""

import subprocess
from dataclasses import dataclass

from broker.address import Address
from tests.broker.cluster import Place


@dataclass(frozen=True, slots=True)
class Machine:
    """One of the machines; `n0` has 10.99.0.1 for clients, and 10.98.0.1 for the other servers."""

    number: int

    @property
    def within(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", f"m{self.number}")

    @property
    def place(self) -> Place:
        own = self.number + 1
        return Place(Address(f"10.99.0.{own}", 4222), Address(f"10.98.0.{own}", 6222), self.within)

    def cut_from_servers(self) -> None:
        _ip("link", "set", f"r{self.number}", "down")

    def cut_from_all(self) -> None:
        self.cut_from_servers()
        _ip("link", "set", f"c{self.number}", "down")

    def heal(self) -> None:
        for line in ("r", "c"):
            _ip("link", "set", f"{line}{self.number}", "up")


def machines(count: int) -> list[Machine]:
    """Make the networks; this process is at the clients' one, as 10.99.0.254."""
    subprocess.run(["mkdir", "-p", "/run/netns"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True)
    _ip("link", "set", "lo", "up")
    for bridge in ("clients", "routes"):
        _ip("link", "add", bridge, "type", "bridge")
        _ip("link", "set", bridge, "up")
    _ip("addr", "add", "10.99.0.254/24", "dev", "clients")
    return [_machine(number) for number in range(count)]


def _machine(number: int) -> Machine:
    name = f"m{number}"
    _ip("netns", "add", name)
    _ip("-n", name, "link", "set", "lo", "up")
    for line, bridge, net in (("c", "clients", "10.99.0"), ("r", "routes", "10.98.0")):
        outer, inner = f"{line}{number}", f"{line}in"
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
        _ip("link", "set", outer, "master", bridge)
        _ip("link", "set", outer, "up")
        _ip("-n", name, "addr", "add", f"{net}.{number + 1}/24", "dev", inner)
        _ip("-n", name, "link", "set", inner, "up")
    return Machine(number)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
