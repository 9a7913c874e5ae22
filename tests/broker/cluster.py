"""Three `logbroker run` as a cluster, which set up all by themselves: started, killed and wiped."""

import asyncio
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from broker.topology import Topology
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.client.access import Access
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import BrokerAway, Connection
from nats_logship.wire.streams import STREAM
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, wait_until

Answer = TypeVar("Answer")

SECRET = "between these three"
PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class Node:
    """One of the brokers; its settings file is there to be changed."""

    name: str
    url: str
    folder: Path
    config: Path
    process: Process

    def wipe(self) -> None:
        """Lose the disk; the broker must not be running."""
        shutil.rmtree(self.folder / "jetstream")
        (self.folder / "broker.json").unlink(missing_ok=True)


class Cluster:
    """The brokers; `settings` are the lines of each broker's settings file."""

    def __init__(
        self, folder: Path, processes: Processes, settings: Sequence[str] = ("", "", "")
    ) -> None:
        self._routes = [f"127.0.0.1:{free_port()}" for _ in settings]
        self._processes = processes
        self.nodes = {
            f"n{number}": self._start(f"n{number}", route, folder / f"n{number}", lines)
            for number, (route, lines) in enumerate(zip(self._routes, settings, strict=True))
        }

    def _start(self, name: str, route: str, folder: Path, settings: str) -> Node:
        folder.mkdir(parents=True)
        secret, config, client = folder / "secret", folder / "broker.toml", free_port()
        secret.touch(0o600)
        secret.write_text(SECRET, "utf-8")
        config.write_text(settings, "utf-8")
        process = self._processes.start(
            name,
            [
                *(sys.executable, "-m", "broker", "run", "--store-dir", folder, "--http", ""),
                *("--listen", f"127.0.0.1:{client}", "--server-name", name, "--cluster", "c"),
                *("--cluster-listen", route, "--cluster-secret-file", secret, "--config", config),
                *(word for one in self._routes for word in ("--route", f"nats-route://{one}")),
                *("--partitions", str(PARTITIONS)),
            ],
        )
        return Node(name, f"nats://127.0.0.1:{client}", folder, config, process)

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes.values()]

    def insist(self, ask: Callable[[Connection], Awaitable[Answer]], seconds: float = 40) -> Answer:
        """Ask until there is an answer, also during elections."""
        return asyncio.run(insist(self.urls, ask, seconds))

    def info(self) -> dict[str, Any]:
        return self.insist(lambda connection: connection.api(f"STREAM.INFO.{STREAM}"))

    def leader(self) -> Node:
        """Return the broker whose server leads the stream."""
        deadline = time.monotonic() + 40
        while not (name := self.info()["cluster"].get("leader")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return self.nodes[name]

    def wait_until_ready(self, *nodes: Node) -> None:
        for node in nodes or self.nodes.values():
            is_ready = (node.folder / "broker.json").exists
            wait_until(f"{node.name} is ready", is_ready, 90, [node.process])

    def wait_until_whole(self, seconds: float = 180) -> None:
        """Return when all replicas of all streams have all that there is."""
        deadline = time.monotonic() + seconds
        calls = [f"STREAM.INFO.{config['name']}" for config in Topology().streams()]

        def ask(call: str) -> dict[str, Any]:
            return self.insist(lambda connection: connection.api(call))

        while not all(_is_whole(ask(call)) for call in calls):
            assert time.monotonic() < deadline, [ask(call) for call in calls]
            time.sleep(0.1)


def _is_whole(info: dict[str, Any]) -> bool:
    replicas = info.get("cluster", {}).get("replicas", [])
    return len(replicas) == 2 and all(
        one["current"] and not one.get("lag", 0) and not one.get("offline") for one in replicas
    )


async def insist(
    urls: Sequence[str],
    ask: Callable[[Connection], Awaitable[Answer]],
    seconds: float = 40,
    access: Access = Access(),  # noqa: B008 - a frozen value
) -> Answer:
    """Ask until there is an answer, also during elections; raises TimeoutError."""
    connection = Connection(list(urls), "tests", access=access)
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await ask(connection)
                except (ConnectionLost, Rejected, BrokerAway, ConfigurationError, OperatorError):
                    await asyncio.sleep(0.1)
    finally:
        await connection.close()
