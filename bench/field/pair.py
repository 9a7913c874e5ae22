"""A peer under measurement: its server at the centre, its client as agent."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.field.peer import Client, Installed, Peer, Server
from bench.field.system import LOOPBACK, Guarantees
from nats_logship.app.address import Address
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, wait_until


@dataclass(frozen=True, slots=True)
class Pair:
    """A peer under a name of its own, as it may have several settings; packages: `unpacked`."""

    name: str
    peer: Peer
    guarantees: Guarantees
    unpacked: Path
    follows: bool = True

    def missing(self) -> str:
        """Say so where it is neither on PATH nor unpacked, or does not run."""
        return self.peer.missing(self.unpacked)

    def version(self) -> str:
        """Ask it."""
        return self.peer.version_of(self._installed())

    def stage(self, folder: Path, processes: Processes, address: str = LOOPBACK) -> "_Staged":
        """Start the server and wait until it listens."""
        output, state = folder / "out", folder / "state"
        for path in (output, state, state / "central"):
            path.mkdir()
        listen = Address(address, free_port())
        program = _Program(self.peer, self._installed(), processes, folder)
        configuration_text = self.peer.server(Server(output, state / "central", listen))
        server = program.start("server", configuration_text, state / "central")
        wait_until(f"{self.name} listens", lambda: _listens(listen), 30, [server])
        return _Staged(program, output, {"receiver": server}, listen)

    def _installed(self) -> Installed:
        installed = self.peer.find(self.unpacked)
        if installed is None:
            raise FileNotFoundError(self.peer.missing(self.unpacked))
        return installed


@dataclass(frozen=True, slots=True)
class _Program:
    """Starts the programs of a peer, each with a configuration of its own."""

    peer: Peer
    installed: Installed
    processes: Processes
    folder: Path

    def start(self, name: str, configuration_text: str, state: Path) -> Process:
        configuration = self.folder / f"{name}.conf"
        configuration.write_text(configuration_text, "utf-8")
        arguments = self.peer.command(self.installed, configuration, state)
        return self.processes.start(name, arguments, self.installed.environment, state)


@dataclass(frozen=True, slots=True)
class _Staged:
    program: _Program
    output: Path
    centre: Mapping[str, Process]
    server: Address

    def start_agent(self, host: str, logs: Path) -> Process:
        state = self.program.folder / "state" / host
        state.mkdir()
        configuration_text = self.program.peer.client(Client(host, logs, state, self.server))
        return self.program.start(f"client-{host}", configuration_text, state)

    def is_committed(self) -> bool:
        return True  # a peer keeps no record of what was received but the file


def _listens(address: Address) -> bool:
    try:
        socket.create_connection((address.host, address.port), 1).close()
    except OSError:
        return False
    return True
