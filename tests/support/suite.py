"""The three programs of the suite, run for real in one folder; and a plain nats-server."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from click.testing import CliRunner

from broker.cli import group as logbroker
from nats_logship.client.access import Access
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.bucket import read
from nats_logship.client.config import read_layout
from nats_logship.client.connection import BrokerAway, Connection
from nats_logship.wire.offset import Offset
from nats_logship.wire.streams import OFFSETS_BUCKET, STREAM, offset_key
from tests.support.commands import run_command
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, installed, wait_until
from tests.support.received import received_bytes

Answer = TypeVar("Answer")

_AWAY = (BrokerAway, ConnectionLost, Rejected)


class Suite:
    """A broker, shippers and receivers that share a folder: `store/`, `state/`, `out/` and logs."""

    def __init__(
        self, folder: Path, processes: Processes, partitions: int = 2, url: str = ""
    ) -> None:
        """Start nothing yet; the broker is at `url`, or at a free port of this machine."""
        self.folder = folder
        self.output = folder / "out"
        self.partitions = partitions
        self.url = url or f"nats://127.0.0.1:{free_port()}"
        self.access = Access()
        """How questions get in at the broker."""
        self._processes = processes
        for name in ("out", "state", "hosts"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def start_broker(self, *options: str, under: Sequence[str] = ()) -> Process:
        """Start the broker, `under` another program if wanted, and wait until it is set up."""
        arguments = ["run", "--store-dir", str(self.folder / "store"), "--http", ""]
        arguments += ["--listen", self.url.removeprefix("nats://")]
        arguments += ["--partitions", str(self.partitions), *options]
        broker = self._processes.start("logbroker", [*under, installed("logbroker"), *arguments])
        self.wait_for_broker(broker)
        return broker

    def wait_for_broker(self, broker: Process) -> None:
        """Wait until the streams are there and the number of partitions can be read."""
        wait_until("the broker is ready", self._is_ready, 90, [broker])

    def start_shipper(self, host: str, files: Sequence[Path | str], *options: str) -> Process:
        arguments = [word for file in files for word in ("--file", file)]
        arguments += ["--server", self.url, "--host", host, *options]
        return self.start_program("logshipper", f"logshipper-{host}", arguments)

    def start_receiver(self, partitions: Sequence[int], *options: str) -> Process:
        name = "logreceiver-p" + "-".join(map(str, partitions))
        arguments = [word for number in partitions for word in ("--partition", str(number))]
        arguments += ["--server", self.url, "--output", str(self.output)]
        arguments += ["--state-dir", str(self.folder / "state" / name), *options]
        return self.start_program("logreceiver", name, arguments)

    def start_program(
        self,
        program: str,
        name: str,
        arguments: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        return self._processes.start(name, [installed(program), *arguments], environment)

    def administer(self, command: str, *arguments: str) -> str:
        return run_command("logbroker", command, *arguments, "--server", self.url, seconds=180)

    def credential(self, kind: str, name: str) -> Path:
        """Add a credential to the store, whether the broker runs or not; return its file."""
        store, path = self.folder / "store", self.folder / f"{kind}-{name}.toml"
        store.mkdir(parents=True, exist_ok=True)
        arguments = ["credentials", "add", kind, name, "--store-dir", str(store)]
        arguments += ["--output", str(path), "--server", self.url, "--yes"]
        done = CliRunner().invoke(logbroker, arguments)  # ten times as fast as a program
        assert done.exit_code == 0, (done.output, done.exception)
        return path

    def wait_for_lines(self, hosts: Iterable[str], watched: Sequence[Process]) -> None:
        """Wait until lines of each host are received."""
        flow = lambda: all(received_bytes(self.output, host) for host in hosts)  # noqa: E731
        wait_until("lines flow", flow, 150, watched)

    def wait_for_receiver(self, receiver: Process, partitions: Sequence[int]) -> None:
        """Wait until the receiver owns its partitions, which nobody has claimed before."""
        owns = lambda: all(self.offset(number) for number in partitions)  # noqa: E731
        wait_until(f"{receiver.name} owns its partitions", owns, 60, [receiver])

    def offset(self, partition: int) -> Offset | None:
        """Return the offset of a partition, None if there is none or the broker is away."""

        async def read_offset(connection: Connection) -> Offset | None:
            entry = await read(connection, OFFSETS_BUCKET, offset_key(partition))
            return Offset.decode(entry.value) if entry else None

        with suppress(*_AWAY):
            return self.ask(read_offset)
        return None

    def last_sequence(self) -> int:
        """Return the stream's last sequence; 0 while the broker is away."""
        with suppress(*_AWAY):
            return int(self.stream()["state"]["last_seq"])
        return 0

    def stream(self) -> dict[str, Any]:
        """Return the stream's info, with the number of messages by subject; raises as `ask`."""
        asked = {"subjects_filter": ">"}
        return self.ask(lambda connection: connection.api(f"STREAM.INFO.{STREAM}", asked))

    def publish(self, subject: str, payload: bytes) -> int:
        """Publish as any NATS client might, and return the sequence; raises as `ask`."""
        return int(self.ask(lambda connection: connection.ask(subject, payload))["seq"])

    def ask(self, question: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        return ask(self.url, question, self.access)

    def _is_ready(self) -> bool:
        async def has_streams(connection: Connection) -> bool:
            layout = await read_layout(connection)
            for name in layout.names if layout else ():
                await connection.api(f"STREAM.INFO.{name}")
            return layout is not None

        with suppress(*_AWAY):
            return self.ask(has_streams)
        return False


def ask(
    url: str,
    question: Callable[[Connection], Awaitable[Answer]],
    access: Access = Access(),  # noqa: B008 - a frozen value
) -> Answer:
    """Ask a broker on a new connection; raises `BrokerAway`, `ConnectionLost`, `Rejected`."""

    async def connected() -> Answer:
        connection = Connection([url], "tests", access=access)
        try:
            await connection.connect()
            return await question(connection)
        finally:
            await connection.close()

    return asyncio.run(connected())


def start_nats_server(processes: Processes, name: str, settings: Path) -> Process:
    """Start a plain nats-server with its file of settings, and wait until it is ready."""
    server = processes.start(name, [installed("nats-server"), "-c", settings])
    wait_until_ready(server)
    return server


def wait_until_ready(server: Process) -> None:
    """Wait until the latest start of a nats-server is done; all starts write to one log."""
    has_started = lambda: server.read_log().count("Server is ready") >= server.starts  # noqa: E731
    wait_until("nats-server is ready", has_started, 60, [server])
