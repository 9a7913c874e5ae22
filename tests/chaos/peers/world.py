"""A world of a peer's programs, such that faults find in it what they look for: hosts, machines, disks, supervised programs.

A host's shipper is the peer's client. A receiver is the peer's server, and so is the broker: a peer has two programs where we
have three, and what strikes our broker strikes the server.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.field.peer import Client, Installed, Peer, Server
from bench.processes import Processes
from broker.app.address import Address
from tests.chaos.disks import Disk
from tests.chaos.host import Host
from tests.chaos.networks import Machine, machines
from tests.chaos.program import Program, Supervisor
from tests.chaos.shape import Shape
from tests.chaos.world import Broker, World

__all__ = ["PeerWorld"]

_HOST_MACHINES = ("h1", "h2")
_SERVER_MACHINE = "r1"
_PORT = 2514
_MEGABYTES = {"host": 256, "central": 768}


@dataclass(frozen=True, slots=True)
class PeerWorld:
    """Builds worlds of one peer."""

    peer: Peer
    installed: Installed

    def built(
        self, folder: Path, shape: Shape, processes: Processes, supervisor: Supervisor
    ) -> World:
        """Mount disks, make networks and start all programs. Nothing is written yet."""
        world = World(folder, shape, processes, supervisor)
        world.machines = machines((*_HOST_MACHINES, _SERVER_MACHINE))
        images = folder / "images"
        images.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", images], check=True)
        central = folder / "central"
        world.disks["central"] = Disk.mounted(
            "central",
            central,
            _MEGABYTES["central"],
            images if "blocks" in world.features else None,
        )
        server = self._start_server(world)
        world.receivers.append(server)
        world.brokers.append(Broker("b1", world.receiver_machine, world.receiver_state, server))
        for number in range(shape.hosts):
            world.hosts.append(self._host(world, number))
        return world

    def _start_server(self, world: World) -> Program:
        machine = world.receiver_machine
        for path in (world.output, world.receiver_state):
            path.mkdir()
        place = Server(world.output, world.receiver_state, Address(machine.address, _PORT))
        told = self.peer.server(place)
        return self._start(world, "server", machine, told, place.state, "receiver")

    def _host(self, world: World, number: int) -> Host:
        name = f"web{number + 1:02}"
        machine = world.machines[_HOST_MACHINES[number % len(_HOST_MACHINES)]]
        folder = world.folder / "hosts" / name
        disk = f"host-{name}"
        world.disks[disk] = Disk.mounted(disk, folder, _MEGABYTES["host"])
        logs, state = folder / "logs", folder / "state"
        for path in (logs, state):
            path.mkdir()
        server = Address(world.receiver_machine.address, _PORT)
        told = self.peer.client(Client(name, logs, state, server))
        host = Host(name, machine.name, logs, world.writing(name, number, logs))
        host.shipper = self._start(world, f"client-{name}", machine, told, state, "shipper")
        return host

    def _start(
        self, world: World, name: str, machine: Machine, told: str, state: Path, role: str
    ) -> Program:
        configuration = world.folder / "configurations" / f"{name}.conf"
        configuration.parent.mkdir(exist_ok=True)
        configuration.write_text(told, "utf-8")
        words = self.peer.command(self.installed, configuration, state)
        process = world.processes.start(
            name, [*machine.within, *words], self.installed.environment, state
        )
        return world.supervisor.take(process, role)
