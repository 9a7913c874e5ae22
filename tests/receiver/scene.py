"""What the tests of whole receivers share: a broker, receivers of its two partitions, and what was published."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from broker.client import bucket
from broker.client.connection import Connection
from broker.wire.offset import Offset
from broker.wire.streams import OFFSETS_BUCKET
from broker.wire.subjects import partition_of
from tests.conftest import Server
from tests.receiver.partition import ask, ours
from tests.support.processes import Process, Processes, wait_until


@dataclass
class Scene:
    """A broker, a receiver of both partitions, and what was published for each host."""

    server: Server
    processes: Processes
    folder: Path
    sent: dict[str, list[bytes]] = field(default_factory=dict)
    last: int = 0

    @property
    def output(self) -> Path:
        return self.folder / "out"

    def receiver(
        self, name: str, *options: str, environment: dict[str, str] | None = None
    ) -> Process:
        """Start a receiver of both partitions."""
        return self.processes.start(
            name,
            [
                *(Path(sys.executable).with_name("logreceiver"), "--partition", "all"),
                *("--server", self.server.url, "--output", self.output, *options),
            ],
            environment,
        )

    def publish(self, blocks: int, size: int = 200) -> None:
        """Publish blocks of numbered lines, as any client may, for hosts of both partitions."""

        async def publish(connection: Connection) -> None:
            for number in range(blocks):
                host = f"host{number % 5}"
                block = f"{self.last + number:08d} {host} ".encode().ljust(size - 1, b".") + b"\n"
                answer = await connection.ask(f"logs.p{partition_of(host, 2)}.{host}", block)
                self.sent.setdefault(host, []).append(block)
            self.last = int(answer["seq"])

        ask(self.server.url, publish)

    def shipped(self, start: int, payload: bytes) -> int:
        """Publish a block as the shipper of web01 does; return its sequence."""
        message = ours("web01", "a", start, payload)
        self.last = int(ask(self.server.url, lambda broker: broker.ask(*message))["seq"])
        return self.last

    def expected(self) -> dict[str, bytes]:
        return {host: b"".join(blocks) for host, blocks in self.sent.items()}

    def received(self) -> dict[str, bytes]:
        return {host: self.of_host(host) for host in self.sent}

    def of_host(self, host: str) -> bytes:
        closed = sorted(self.output.glob(f"{host}.log.??????"))
        live = self.output / f"{host}.log"
        try:
            return b"".join(path.read_bytes() for path in (*closed, live) if path.exists())
        except FileNotFoundError:  # rotated just now
            return b""

    def wait_for_all(self, *watched: Process, seconds: float = 150) -> None:
        def is_committed() -> bool:
            return self.received() == self.expected() and self.committed() > self.last

        wait_until("all lines are committed", is_committed, seconds, watched)

    def committed(self) -> int:
        async def read(connection: Connection) -> int:
            entries = [await bucket.read(connection, OFFSETS_BUCKET, f"p{n}") for n in (0, 1)]
            return max(Offset.decode(entry.value).next if entry else 0 for entry in entries)

        return ask(self.server.url, read)
