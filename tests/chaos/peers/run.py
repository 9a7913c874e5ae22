"""Peers: which there are, the world of one of them, and a run of it.

Faults find in a peer's world what they look for: hosts, machines, disks, supervised programs. A host's shipper is the peer's
client. A receiver is the peer's server, and so is the broker: a peer has two programs where we have three, and what strikes our
broker strikes the server. A peer may lose lines, which ends no run: it is counted. Lines flow again when one of each log that was
written after a fault has arrived; that all have, may never be.
"""

import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.field.fluent_bit import FLUENT_BIT
from bench.field.peer import Client, Installed, Peer, Server
from bench.field.rsyslog import RSYSLOG
from bench.field.syslog_ng import SYSLOG_NG
from bench.oracle import judge
from bench.processes import Processes
from bench.received import read_received
from broker.app.address import Address
from tests.chaos.disks import Disk
from tests.chaos.networks import Machine, machines
from tests.chaos.order import Order
from tests.chaos.program import Program, Supervisor
from tests.chaos.run import strike
from tests.chaos.runlog import Result, RunLog
from tests.chaos.schedule import Stroke
from tests.chaos.world import Broker, Host, World

__all__ = ["COMMON", "PEERS", "Tail", "numbers_in", "run_peer"]

PEERS: dict[str, Peer] = {peer.name: peer for peer in (RSYSLOG, SYSLOG_NG, FLUENT_BIT)}
COMMON: dict[str, tuple[str, ...]] = {
    "processes": tuple(
        f"{what}-{whom}"
        for what in ("kill", "stop", "end")
        for whom in ("shipper", "broker", "driver")
    ),
    "lines": (
        *("swallow-host", "swallow-receiver", "mute-host", "deafen-receiver", "half-open-host"),
        *("half-open-receiver", "reset-host", "reset-receiver", "flap-host", "slow-host"),
        "kill-unseen-shipper",
    ),
    "disks": ("full-central", "nearly-full-central", "read-only-central", "power-central"),
}
"""Kinds by family. A broker's faults are left out but for those of its process: where there is none, they would hit the
receivers' disk or line a second time."""

_HOST_MACHINES, _SERVER_MACHINE = ("h1", "h2"), "r1"
_PORT = 2514
_MEGABYTES = {"host": 256, "central": 768}
_A_FEW_LINES = 0.3  # seconds
_FLOW, _QUIET, _DRY = 60.0, 15.0, 120.0  # seconds until lines flow again; until no more comes
_LINE = re.compile(rb"^(?P<tag>\S+) (?P<number>[0-9]{8}) .*\n", re.MULTILINE)


def numbers_in(text: bytes) -> dict[bytes, int]:
    """Return the highest number of each tag in whole lines of `tests.chaos.writers`, whatever order they are in."""
    found: dict[bytes, int] = {}
    for line in _LINE.finditer(text):
        number = int(line["number"])
        found[line["tag"]] = max(found.get(line["tag"], -1), number)
    return found


@dataclass(slots=True)
class Tail:
    """Reads on in a file that grows, which need not be there yet."""

    path: Path
    numbers: dict[bytes, int] = field(default_factory=dict)
    _read: int = 0

    def read(self) -> dict[bytes, int]:
        """Return the highest number of each tag so far; what cannot be read just now is read the next time."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                text = file.read()
        except OSError:
            return self.numbers
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for tag, number in numbers_in(whole).items():
            self.numbers[tag] = max(self.numbers.get(tag, -1), number)
        return self.numbers


@dataclass(frozen=True, slots=True)
class _Builder:
    """Fills the world of a peer: disks, networks and programs. Nothing is written yet."""

    peer: Peer
    installed: Installed
    world: World

    def build(self) -> None:
        world = self.world
        world.machines = machines((*_HOST_MACHINES, _SERVER_MACHINE))
        images = world.folder / "images"
        images.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", images], check=True)
        blocks = images if "blocks" in world.features else None
        central = world.folder / "central"
        world.disks["central"] = Disk.mounted("central", central, _MEGABYTES["central"], blocks)
        server = self._start_server()
        world.receivers.append(server)
        world.brokers.append(Broker("b1", world.receiver_machine, world.receiver_state, server))
        for number in range(world.shape.hosts):
            world.hosts.append(self._host(number))

    def _start_server(self) -> Program:
        world, machine = self.world, self.world.receiver_machine
        for path in (world.output, world.receiver_state):
            path.mkdir()
        place = Server(world.output, world.receiver_state, Address(machine.address, _PORT))
        return self._start("server", machine, self.peer.server(place), place.state, "receiver")

    def _host(self, number: int) -> Host:
        world, name = self.world, f"web{number + 1:02}"
        machine = world.machines[_HOST_MACHINES[number % len(_HOST_MACHINES)]]
        folder, disk = world.folder / "hosts" / name, f"host-{name}"
        world.disks[disk] = Disk.mounted(disk, folder, _MEGABYTES["host"])
        logs, state = folder / "logs", folder / "state"
        for path in (logs, state):
            path.mkdir()
        told = self.peer.client(
            Client(name, logs, state, Address(world.receiver_machine.address, _PORT))
        )
        host = Host(name, machine.name, logs, world.writing(name, number, logs))
        host.shipper = self._start(f"client-{name}", machine, told, state, "shipper")
        return host

    def _start(self, name: str, machine: Machine, told: str, state: Path, role: str) -> Program:
        configuration = self.world.folder / "configurations" / f"{name}.conf"
        configuration.parent.mkdir(exist_ok=True)
        configuration.write_text(told, "utf-8")
        words = [*machine.within, *self.peer.command(self.installed, configuration, state)]
        process = self.world.processes.start(name, words, self.installed.environment, state)
        return self.world.supervisor.take(process, role)


def run_peer(
    folder: Path,
    order: Order,
    strokes: Iterator[Stroke],
    peer: Peer,
    installed: Installed,
    calm: float,
) -> Result:
    """Carry out strokes until as many faults have struck as the order wants; then judge, within namespaces of its own.

    A finding is a host whose lines did not flow again, or with a verdict that is not perfect. `calm` is how many seconds pass
    before the first stroke.
    """
    log = RunLog(folder / "run.jsonl")
    log.tell("began", shape=order.shape.as_json(), peer=peer.name)
    result = Result(order.shape.seed)
    began = time.monotonic()
    (folder / "logs").mkdir()
    with Processes(folder / "logs") as processes, Supervisor() as supervisor:
        world = World(folder, order.shape, processes, supervisor)
        _Builder(peer, installed, world).build()
        for host in world.hosts:
            host.start_writing()
        try:
            _Fire(world, log, result).stand(strokes, order.wanted.most, calm)
        finally:
            for host in world.hosts:
                host.stop_writing()
        _run_dry(world, log)
        result.starts = sum(one.process.starts - 1 for one in supervisor.programs)
        supervisor.stop()
        processes.end_all()
        _judge(world, log, result)
    result.seconds = time.monotonic() - began
    log.tell("done", **result.as_json())
    return result


class _Fire:
    """Strokes upon a world, one after the other."""

    def __init__(self, world: World, log: RunLog, result: Result) -> None:
        self._world, self._log, self._result = world, log, result
        self._tails = {host.name: Tail(world.output / f"{host.name}.log") for host in world.hosts}

    def stand(self, strokes: Iterator[Stroke], most: int | None, calm: float) -> None:
        """Carry them out until `most` faults have struck."""
        result = self._result
        began = time.monotonic()
        kinds: set[str] = set()
        self._wait_for_flow(kinds)
        time.sleep(calm)
        for stroke in strokes:
            if most is not None and result.faults.total() >= most:
                break
            self._log.tell("stroke", number=result.strokes, **stroke.as_json())
            kinds |= result.count(strike(self._world, stroke, self._log))
            if stroke.settles:
                self._wait_for_flow(kinds)
                kinds = set()
            time.sleep(stroke.pause)
        result.writing = time.monotonic() - began

    def _wait_for_flow(self, kinds: set[str]) -> None:
        time.sleep(_A_FEW_LINES)
        written = {host.name: numbers_in(b"".join(host.sources())) for host in self._world.hosts}

        def late() -> list[str]:
            return [host for host, numbers in written.items() if not self._has(host, numbers)]

        try:
            waited = self._world.supervisor.wait("lines flow again", lambda: not late(), _FLOW)
        except TimeoutError as error:
            self._result.findings.append(f"{error}: {', '.join(late())}")
            self._log.tell("does not flow", hosts=late())
            return
        self._result.flowed(_A_FEW_LINES + waited, kinds)
        self._log.tell("flows", waited=round(waited, 2))

    def _has(self, host: str, numbers: dict[bytes, int]) -> bool:
        received = self._tails[host].read()
        return all(received.get(tag, -1) >= number for tag, number in numbers.items())


def _run_dry(world: World, log: RunLog) -> None:
    """Wait until nothing comes any more; what is all there needs no waiting."""
    began = changed = time.monotonic()
    sizes: dict[str, int] = {}
    while time.monotonic() - changed < _QUIET and time.monotonic() - began < _DRY:
        if (now := world.received.sizes()) != sizes:
            sizes, changed = now, time.monotonic()
        time.sleep(0.2)
    log.tell("dry", waited=round(changed - began, 2))


def _judge(world: World, log: RunLog, result: Result) -> None:
    for host in world.hosts:
        verdict = judge(host.sources(), read_received(world.output, host.name))
        result.verdicts[host.name] = verdict
        log.tell("verdict", host=host.name, perfect=verdict.is_perfect, words=str(verdict))
        if not verdict.is_perfect:
            result.findings.append(f"{host.name}: {verdict}")
