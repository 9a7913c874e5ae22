"""What tests of whole receivers share: a broker, receivers of two partitions, and what was sent."""

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats_logship.wire.subjects import partition_of
from tests.receiver.partition import Partition, api, ours, publish
from tests.support.processes import Process, Processes, wait_until
from tests.support.received import read_received


@dataclass
class Scene:
    """A broker, a receiver of both partitions, and what was published for each host."""

    url: str
    processes: Processes
    folder: Path
    sent: dict[str, list[bytes]] = field(default_factory=dict)
    last: int = 0

    def api(self, name: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return api(self.url, name, body)

    @property
    def output(self) -> Path:
        return self.folder / "out"

    def partition(self, number: int, owner: str = "") -> Partition:
        """Return a partition, for an owner in a folder of its own."""
        return Partition(self.url, self.folder / owner, number)

    def receiver(
        self, name: str, *options: str, environment: dict[str, str] | None = None
    ) -> Process:
        """Start a receiver of both partitions."""
        words = ["--partition", "all", "--server", self.url, "--output", self.output, *options]
        command = [sys.executable, "-m", "receiver", *words]
        return self.processes.start(name, command, environment)

    def publish(self, blocks: int, size: int = 200) -> None:
        """Publish blocks of numbered lines, as any client may, for hosts of both partitions."""
        messages = []
        for number in range(blocks):
            host = f"host{number % 5}"
            block = f"{self.last + number:08d} {host} ".encode().ljust(size - 1, b".") + b"\n"
            messages.append((f"logs.p{partition_of(host, 2)}.{host}", block, None))
            self.sent.setdefault(host, []).append(block)
        self.last = publish(self.url, *messages)

    def shipped(self, start: int, payload: bytes) -> int:
        """Publish a block as the shipper of web01 does; return its sequence."""
        self.last = publish(self.url, ours("web01", "a", start, payload))
        return self.last

    def expected(self) -> dict[str, bytes]:
        return {host: b"".join(blocks) for host, blocks in self.sent.items()}

    def received(self) -> dict[str, bytes]:
        with suppress(FileNotFoundError, ValueError):  # a file is just being exchanged
            return {host: read_received(self.output, host) for host in self.sent}
        return {}

    def wait_for_log(self, process: Process, text: str, count: int = 1) -> None:
        has_come = lambda: process.read_log().count(text) >= count  # noqa: E731
        wait_until(f"{text!r} is logged", has_come, 150, [process])

    def wait_for_all(self, *watched: Process, seconds: float = 150) -> None:
        def is_committed() -> bool:
            return self.received() == self.expected() and self.committed() > self.last

        wait_until("all lines are committed", is_committed, seconds, watched)

    def committed(self) -> int:
        return max(self.partition(number).offset().next for number in (0, 1))
