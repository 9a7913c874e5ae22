"""A whole suite in one folder, each program on a machine of its own under a service manager.

folder/hosts/<host>/logs            the host's disk
folder/brokers/<name>               a broker's disk
folder/central/out, state           the receivers' disk
folder/table/logs                   the table, on the disk of its writer
folder/credentials                  what is carried to each program, where the brokers are secured
folder/journals/<host>              the host's journal, if this machine can write one
folder/written/<host>               what the host's applications wrote
folder/faults                       the points at which processes of receivers are killed
folder/logs/<program>.log           what the programs say
folder/tmp/<program>                their TMPDIR
folder/shim                         the library before libc, with a page of memory per program
folder/images                       the images of brokers' and receivers' disks
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nats_logship.app import faults
from nats_logship.app.locks import exclusive_lock
from nats_logship.client import bucket
from nats_logship.client.access import Access
from nats_logship.client.answer import Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.find import find_message
from nats_logship.wire.message import EXPECTED_SEQUENCE
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import OFFSETS_BUCKET, offset_key
from nats_logship.wire.subjects import partition_of
from tests.broker.cluster import SECRET, insist
from tests.chaos.disks import Disk
from tests.chaos.journal import Journal
from tests.chaos.networks import Machine, machines
from tests.chaos.program import Program, Supervisor
from tests.chaos.received import Received
from tests.chaos.secured import Keys
from tests.chaos.shape import Shape, host_name, machine_features
from tests.chaos.shim import Control, Shim
from tests.chaos.spark import Cluster as SparkCluster
from tests.chaos.tails import Tails
from tests.chaos.writers import applications
from tests.chaos.writing import Writing
from tests.support.processes import Processes, installed

Answer = TypeVar("Answer")

_HOST_MACHINES = ("h1", "h2")
_RECEIVER_MACHINE = "r1"
_RECEIVER, _SPARK, _TABLE = "receiver-", "spark", "table"
_DISKS = {"host": 256, "broker": 768, "central": 768, "table": 768}  # megabytes
_A_DAY_AHEAD = 26 * 3600.0  # seconds: all that the writer of the table merges is of a closed day
_HOST_CONNECTIONS = 30  # more than all hosts have
_NOT_FOUND = 404


@dataclass(slots=True)
class Broker:
    name: str
    machine: Machine
    store: Path
    program: Program

    @property
    def url(self) -> str:
        return f"nats://{self.machine.client}"


@dataclass(slots=True)
class Host:
    name: str
    machine: str
    writing: Writing
    shipper: Program

    @property
    def journal(self) -> Journal | None:
        return self.writing.journal

    def written(self) -> int:
        """Return the bytes of all whole lines written so far, in all files and rotations."""
        journal = self.journal.written if self.journal else 0
        return journal + sum(log.whole for log in self.writing.logs)

    def sources(self, lost: set[int]) -> list[bytes]:
        """Return what was written to each log, in order, over all of its rotations.

        Journal entries that are reported as `lost`, and were deleted, are left out.
        """
        journal = [self.journal.content(lost)] if self.journal else []
        return [*journal, *(log.content() for log in self.writing.logs)]


@dataclass(slots=True)
class World:
    """What faults act on. Made by `built`, within namespaces of its own."""

    folder: Path
    shape: Shape
    processes: Processes
    supervisor: Supervisor
    machines: dict[str, Machine] = field(default_factory=dict)
    disks: dict[str, Disk] = field(default_factory=dict)
    brokers: list[Broker] = field(default_factory=list)
    hosts: list[Host] = field(default_factory=list)
    receivers: list[Program] = field(default_factory=list)
    spark: SparkCluster | None = None
    spark_programs: list[Program] = field(default_factory=list)
    """The master, and the workers."""
    tables: list[Program] = field(default_factory=list)
    """The writer of the table, if there is one."""
    keys: Keys | None = None
    shim: Shim | None = None
    received: Received = field(init=False)
    tails: Tails = field(init=False)

    def __post_init__(self) -> None:
        self.received = Received(self.output)
        self.tails = Tails(self.output, map(host_name, range(self.shape.hosts)))

    @classmethod
    def built(
        cls, folder: Path, shape: Shape, processes: Processes, supervisor: Supervisor
    ) -> "World":
        """Mount disks, make networks, start all programs and wait; nothing is written yet."""
        world = cls(folder, shape, processes, supervisor)
        brokers = ("b1", "b2", "b3") if shape.topology == "cluster" else ("b1",)
        world.machines = machines((*brokers, *_HOST_MACHINES, _RECEIVER_MACHINE))
        for name in ("logs", "tmp", "images", "faults"):
            (folder / name).mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder / "images"], check=True)
        if "shim" in machine_features():
            world.shim = Shim(folder / "shim")
        for name in brokers:
            world._mount(f"broker-{name}", folder / "brokers" / name, "broker")
        world._mount("central", folder / "central", "central")
        world._mount("table", folder / "table", "table")
        world._start_brokers(brokers)
        world._start_receivers()
        if shape.table:
            world._start_table()
        for number in range(shape.hosts):
            world._add_host(number)
        return world

    @property
    def output(self) -> Path:
        return self.folder / "central" / "out"

    @property
    def table_folder(self) -> Path:
        return self.folder / "table" / "logs"

    @property
    def receiver_state(self) -> Path:
        return self.folder / "central" / "state"

    @property
    def receiver_faults(self) -> Path:
        """The folder that `nats_logship.app.faults` asks in receivers and writers of tables."""
        return self.folder / "faults"

    @property
    def receiver_machine(self) -> Machine:
        return self.machines[_RECEIVER_MACHINE]

    @property
    def urls(self) -> list[str]:
        return [broker.url for broker in self.brokers]

    @property
    def access(self) -> Access:
        return self.keys.access if self.keys else Access()

    @property
    def admin_arguments(self) -> list[str | Path]:
        """What a command of ours takes that asks the brokers for an admin."""
        return ["--config", self.keys.admin] if self.keys else self._servers

    @property
    def _servers(self) -> list[str | Path]:
        return [word for url in self.urls for word in ("--server", url)]

    @property
    def shippers(self) -> list[Program]:
        return [host.shipper for host in self.hosts]

    @property
    def broker_programs(self) -> list[Program]:
        return [broker.program for broker in self.brokers]

    @property
    def partitions_in_use(self) -> list[int]:
        return sorted({partition_of(host.name, self.shape.partitions) for host in self.hosts})

    def offset(self, partition: int) -> Offset | None:
        try:
            return Offset.decode(self.read_entry(OFFSETS_BUCKET, offset_key(partition)))
        except UnreadableOffset:
            return None

    def read_entry(self, name: str, key: str) -> bytes:
        """Return an entry's value, or empty, from the server that leads its bucket."""

        async def read(connection: Connection) -> bytes:
            asked = {"last_by_subj": f"$KV.{name}.{key}"}
            found = await find_message(connection, f"KV_{name}", asked)
            return found.payload if found else b""

        return self.ask(read)

    def change_entry(self, name: str, key: str, change: Callable[[bytes], bytes | None]) -> bytes:
        """Change an entry while others may write it, None deletes it; return what it was."""
        # by what was written, as the answer to that may be lost
        was: dict[bytes | None, bytes] = {}

        async def compare_and_set(connection: Connection) -> bytes:
            entry = await bucket.read(connection, name, key)
            now = entry.value if entry else None
            if now in was or entry is None:
                return was.get(now, b"")
            value = change(entry.value)
            was[value] = entry.value
            headers = {EXPECTED_SEQUENCE: str(entry.revision)}
            headers |= {"KV-Operation": "DEL"} if value is None else {}
            await connection.ask(f"$KV.{name}.{key}", value or b"", headers)
            return entry.value

        return self.ask(compare_and_set)

    def delete(self, what: str) -> None:
        """Delete, for example, "STREAM.DELETE.KV_X"; an earlier try may have done so."""

        async def delete(connection: Connection) -> None:
            try:
                await connection.api(what)
            except Rejected as refused:
                if refused.code != _NOT_FOUND:
                    raise

        self.ask(delete)

    @contextmanager
    def locked(self, seconds: float = 60) -> Iterator[None]:
        """Hold the locks of all tasks: earlier tasks have ended. Raises `Locked`."""
        with ExitStack() as stack:
            for number in range(self.shape.partitions):
                path = self.receiver_state / f"p{number}.lock"
                stack.enter_context(exclusive_lock(path, seconds))
            yield

    def ask(
        self, question: Callable[[Connection], Coroutine[Any, Any, Answer]], seconds: float = 60
    ) -> Answer:
        """Ask the brokers as an admin, through elections, until an answer; raises TimeoutError."""
        return asyncio.run(insist(self.urls, question, seconds, self.access))

    def start_program(
        self, program: str, name: str, machine: Machine, arguments: Sequence[str | Path]
    ) -> Program:
        scratch = self.folder / "tmp" / name
        scratch.mkdir(parents=True, exist_ok=True)
        process = self.processes.start(
            name,
            [*machine.within, installed(program), *arguments],
            {"TMPDIR": str(scratch), **self._environment(name)},
        )
        return self.supervisor.take(process)

    def _environment(self, name: str) -> dict[str, str]:
        is_receiver = name in {_SPARK, _TABLE} or name.startswith(_RECEIVER)
        points = {faults.VARIABLE: str(self.receiver_faults)} if is_receiver else {}
        return {**points, **(self.shim.environment(name) if self.shim else {})}

    def control(self, program: Program) -> Control:
        """Return the environment of the shim for a program; needs the feature "shim"."""
        if self.shim is None:
            raise LookupError("there is no shim in this world")
        return self.shim.controls[_SPARK if program in self.spark_programs else program.name]

    def _mount(self, name: str, path: Path, kind: str) -> None:
        has_blocks = kind != "host" and "blocks" in machine_features()
        images = self.folder / "images" if has_blocks else None
        self.disks[name] = Disk.mounted(name, path, _DISKS[kind], images)

    def _start_brokers(self, names: Sequence[str]) -> None:
        addresses = [f"nats-route://{self.machines[name].route}" for name in names]
        routes = [option for address in addresses for option in ("--route", address)]
        secret = self.folder / "secret"
        secret.touch(0o600)
        secret.write_text(SECRET, "utf-8")
        stores = {name: self.folder / "brokers" / name / "store" for name in names}
        if self.shape.secured:
            self.keys = Keys.made(
                self.folder / "credentials",
                [(self.machines[name], stores[name]) for name in names],
                hosts=[host_name(number) for number in range(self.shape.hosts)],
                receivers=[*self._receiver_names, _TABLE],
            )
        limits = self.folder / "limits.toml"
        limits.write_text(f"host_connections = {_HOST_CONNECTIONS + self.shape.hosts}\n", "utf-8")
        for name, store in stores.items():
            machine, partitions = self.machines[name], str(self.shape.partitions)
            arguments: list[str | Path] = ["run", "--store-dir", store, "--server-name", name]
            arguments += ["--listen", str(machine.client), "--http", "", "--partitions", partitions]
            arguments += ["--config", limits] if self.keys else ["--allow-anonymous"]
            if len(names) > 1:
                arguments += ["--cluster", "c", "--cluster-listen", str(machine.route)]
                arguments += [*routes, "--cluster-secret-file", secret]
            program = self.start_program("logbroker", name, machine, arguments)
            self.brokers.append(Broker(name, machine, store, program))
        are_ready = lambda: all((one.store / "broker.json").exists() for one in self.brokers)  # noqa: E731
        self.supervisor.wait("the brokers are ready", are_ready, 60)

    def _start_receivers(self) -> None:
        machine = self.receiver_machine
        for path in (self.output, self.receiver_state):
            path.mkdir()
        arguments: list[str | Path] = ["--output", self.output, "--state-dir", self.receiver_state]
        arguments += ["--rotate-size", "300kB", "--compress", "zstd"]
        if self.shape.receivers == "standby":
            arguments += ["--standby", "--takeover-after", "3s"]
        arguments += ["--master", f"local[{self.shape.slots}]"]
        if self.shape.receivers == "spark":
            self._start_spark(machine)
            assert self.spark
            arguments[-1:] = [self.spark.url, "--executor-python", str(self.spark.python)]
            arguments += ["--spark-conf", f"spark.cores.max={len(self.spark.workers)}"]
        for name in self._receiver_names:
            own = [*self._receiver_arguments(name), *arguments]
            started = self.start_program("logreceiver", _RECEIVER + name, machine, own)
            self.receivers.append(started)

    def _start_spark(self, machine: Machine) -> None:
        folder = self.folder / "spark"
        folder.mkdir()
        environment = self._environment(_SPARK)
        self.spark = SparkCluster(
            self.processes, folder, machine.address, machine.within, environment
        )
        self.spark_programs += map(self.supervisor.take, (self.spark.master, *self.spark.workers))

    def _start_table(self) -> None:
        """Start the writer of the table; its clock is ahead, so that it merges files."""
        arguments: list[str | Path] = ["table", "--table", self.table_folder, "--every", "2s"]
        arguments += ["--readers-grace", "1h", "--tasks", "2", *self._access_arguments(_TABLE)]
        if self.spark:
            arguments += ["--master", self.spark.url, "--executor-python", sys.executable]
        if self.shim:
            self.shim.control(_TABLE).step(_A_DAY_AHEAD)
        program = self.start_program("logreceiver", _TABLE, self.receiver_machine, arguments)
        self.tables.append(program)

    @property
    def _receiver_names(self) -> list[str]:
        return ["one", "two"] if self.shape.receivers == "standby" else ["one"]

    def _receiver_arguments(self, name: str) -> list[str | Path]:
        return [*([] if self.keys else ["--partition", "all"]), *self._access_arguments(name)]

    def _access_arguments(self, name: str) -> list[str | Path]:
        return ["--config", self.keys.file("receiver", name)] if self.keys else self._servers

    def _host_arguments(self, name: str, number: int) -> list[str | Path]:
        """Every second host has its credential read at each connect, the others at their start."""
        if self.keys and number % 2 == 0:
            return ["--config", self.keys.file("host", name)]
        arguments = ["--host", name, *self._servers]
        if self.keys:
            arguments += ["--nkey", self.keys.file("host", name), "--tls-ca", self.keys.authority]
        return arguments

    def _add_host(self, number: int) -> None:
        name = host_name(number)
        machine = self.machines[_HOST_MACHINES[number % len(_HOST_MACHINES)]]
        folder = self.folder / "hosts" / name
        self._mount(f"host-{name}", folder, "host")
        logs = folder / "logs"
        logs.mkdir()
        own = self._host_arguments(name, number)
        arguments = ["--file", logs / "**/*.log", "--grace", "30s", *own]
        seed, journal = self.shape.seed + number, None
        if "journal" in machine_features():
            journal = Journal(self.folder / "journals" / name, seed)
            arguments += ["--journal", "--journal-directory", journal.folder]
        running = applications(number, self.shape.rate, seed)
        if any(one.records for one in running):
            arguments += ["--records", "indented"]
        shipper = self.start_program("logshipper", f"shipper-{name}", machine, arguments)
        writing = Writing(
            logs,
            accounts=self.folder / "written" / name,
            applications=running,
            seed=seed,
            received=lambda: self.received.lately(name) + self.received.excused(name, journal),
            journal=journal,
        )
        self.hosts.append(Host(name, machine.name, writing, shipper))
