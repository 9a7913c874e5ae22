"""The three programs of the suite, run for real in one folder: command lines, readiness, and what they have done so far.

Reads what the programs promise to everybody (files, the broker's own state), never what they log.
"""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from broker.client.access import Access
from broker.client.answer import ConnectionLost, Rejected
from broker.client.bucket import read
from broker.client.config import read_layout
from broker.client.connection import BrokerAway, Connection
from broker.wire.offset import Offset
from broker.wire.streams import OFFSETS_BUCKET, STREAM, offset_key
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, ProgramDied, wait_until

Answer = TypeVar("Answer")


class Suite:
    """A broker, shippers and receivers that share a folder: `store/`, `state/`, `out/` and the programs' logs."""

    def __init__(
        self,
        folder: Path,
        processes: Processes,
        partitions: int = 2,
        address: str = "127.0.0.1",
    ) -> None:
        """Nothing is started yet; the port is chosen, and stays through restarts of the broker."""
        self.folder = folder
        self.output = folder / "out"
        self.partitions = partitions
        self.url = f"nats://{address}:{free_port()}"
        self._processes = processes
        for name in ("out", "state", "hosts"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def start_broker(self, *options: str, under: Sequence[str] = ()) -> Process:
        """Start the broker, `under` another program if wanted, and wait until it is set up."""
        words = ["run", "--store-dir", str(self.folder / "store"), "--http", ""]
        words += ["--listen", self.url.removeprefix("nats://")]
        words += ["--partitions", str(self.partitions), *options]
        broker = self._processes.start("logbroker", [*under, *_program("logbroker"), *words])
        self.wait_for_broker(broker)
        return broker

    def wait_for_broker(self, broker: Process) -> None:
        """Wait until the streams are there and the number of partitions can be read."""
        wait_until("the broker is ready", self._is_ready, 90, [broker])

    def start_shipper(self, host: str, files: Sequence[Path | str], *options: str) -> Process:
        """Start a shipper that follows `files` as `host`; does not wait."""
        words = [word for file in files for word in ("--file", file)]
        words += ["--server", self.url, "--host", host, *options]
        return self.start_program("logshipper", f"logshipper-{host}", words)

    def start_receiver(self, partitions: Sequence[int], *options: str) -> Process:
        """Start one receiver for the given partitions; does not wait."""
        name = "logreceiver-p" + "-".join(map(str, partitions))
        words = [word for number in partitions for word in ("--partition", str(number))]
        words += ["--server", self.url, "--output", str(self.output)]
        words += ["--state-dir", str(self.folder / "state" / name), *options]
        return self.start_program("logreceiver", name, words)

    def start_program(
        self,
        program: str,
        name: str,
        arguments: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """Start one of the programs with arguments of the caller's own."""
        return self._processes.start(name, [*_program(program), *arguments], environment)

    def administer(self, command: str, *words: str) -> str:
        """Run a command of logbroker against the broker and return what it says; raises `ProgramDied`."""
        ended = subprocess.run(
            [*_program("logbroker"), command, *words, "--server", self.url],
            check=False,
            capture_output=True,
            text=True,
            timeout=180,
        )
        if ended.returncode:
            raise ProgramDied(f"logbroker {command} ended with {ended.returncode}: {ended.stderr}")
        return ended.stdout

    def wait_for_receiver(
        self, receiver: Process, partitions: Sequence[int], epoch: int = 1, seconds: float = 60
    ) -> None:
        """Wait until the receiver owns its partitions: each is claimed for the `epoch`-th time or later."""

        def owns() -> bool:
            offsets = [self.offset(number) for number in partitions]
            return all(offset is not None and offset.epoch >= epoch for offset in offsets)

        wait_until(f"{receiver.name} owns its partitions", owns, seconds, [receiver])

    def offset(self, partition: int) -> Offset | None:
        """Return what a receiver has committed; None when it has not begun, or while the broker is away."""

        async def ask(connection: Connection) -> Offset | None:
            entry = await read(connection, OFFSETS_BUCKET, offset_key(partition))
            return Offset.decode(entry.value) if entry else None

        return self._ask(ask)

    def last_sequence(self) -> int:
        """Return the stream's last sequence; 0 while the broker is away."""

        async def ask(connection: Connection) -> int:
            state = (await connection.api(f"STREAM.INFO.{STREAM}"))["state"]
            return int(state["last_seq"])

        return self._ask(ask) or 0

    def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> int:
        """Publish as any NATS client might, and return the sequence."""

        async def ask(connection: Connection) -> int:
            return int((await connection.ask(subject, payload, headers))["seq"])

        sequence = self._ask(ask)
        if sequence is None:
            raise ConnectionLost(f"not stored: {subject}")
        return sequence

    def _is_ready(self) -> bool:
        async def ask(connection: Connection) -> bool:
            layout = await read_layout(connection)
            for name in layout.names if layout else ():
                await connection.api(f"STREAM.INFO.{name}")
            return layout is not None

        return self._ask(ask) or False

    def ask(
        self,
        question: Callable[[Connection], Awaitable[Answer]],
        access: Access = Access(),  # noqa: B008 - a frozen value
    ) -> Answer:
        """Ask the broker on a connection of its own; raises `BrokerAway`, `ConnectionLost`, `Rejected`."""
        return ask(self.url, question, access)

    def _ask(self, question: Callable[[Connection], Awaitable[Answer]]) -> Answer | None:
        try:
            return self.ask(question)
        except (BrokerAway, ConnectionLost, Rejected):
            return None


def ask(
    url: str,
    question: Callable[[Connection], Awaitable[Answer]],
    access: Access = Access(),  # noqa: B008 - a frozen value
) -> Answer:
    """Ask a broker on a connection of its own; raises `BrokerAway`, `ConnectionLost`, `Rejected`."""

    async def connected() -> Answer:
        connection = Connection([url], "tests", access=access)
        try:
            await connection.once()
            return await question(connection)
        finally:
            await connection.close()

    return asyncio.run(connected())


def _program(name: str) -> list[str]:
    """Return the command of a program that is installed beside this Python."""
    return [str(Path(sys.executable).with_name(name))]
