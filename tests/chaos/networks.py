"""Machines on one: a network of its own for each program's machine, with lines that can be cut, slowed and made to swallow.

Only within namespaces of the caller's own (`tests.chaos.apart`), where nothing is left of it afterwards.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from broker.address import Address

__all__ = ["Machine", "machines"]


@dataclass(frozen=True, slots=True)
class Machine:
    """One of the machines: 10.99.0.<number> for clients, 10.98.0.<number> for the brokers among themselves."""

    name: str
    number: int

    @property
    def within(self) -> tuple[str, ...]:
        """What the command line of a program on it begins with."""
        return ("nsenter", f"--net=/run/netns/{self.name}", "--")

    @property
    def address(self) -> str:
        return f"10.99.0.{self.number}"

    @property
    def client(self) -> Address:
        """Where a broker on it is reached."""
        return Address(self.address, 4222)

    @property
    def route(self) -> Address:
        """Where a broker on it is reached by the others."""
        return Address(f"10.98.0.{self.number}", 6222)


def machines(names: Sequence[str]) -> dict[str, Machine]:
    """Make the networks; the caller is at the clients' one, as 10.99.0.254."""
    Path("/run/netns").mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True)
    _ip("link", "set", "lo", "up")
    for bridge in ("clients", "routes"):
        _ip("link", "add", bridge, "type", "bridge")
        _ip("link", "set", bridge, "up")
    _ip("addr", "add", "10.99.0.254/24", "dev", "clients")
    return {name: _machine(name, number) for number, name in enumerate(names, 1)}


def _machine(name: str, number: int) -> Machine:
    _ip("netns", "add", name)
    _ip("-n", name, "link", "set", "lo", "up")
    for line, bridge, net in (("c", "clients", "10.99.0"), ("r", "routes", "10.98.0")):
        outer, inner = f"{line}{number}", f"{line}in"
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
        _ip("link", "set", outer, "master", bridge)
        _ip("link", "set", outer, "up")
        _ip("-n", name, "addr", "add", f"{net}.{number}/24", "dev", inner)
        _ip("-n", name, "link", "set", inner, "up")
    return Machine(name, number)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
