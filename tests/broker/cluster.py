"""Three nats-servers as a cluster of brokers, configured as logbroker does it: started, killed and wiped."""

import asyncio
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from broker.app.address import Address
from broker.app.exits import ConfigurationError, OperatorError
from broker.client.answer import ConnectionLost, Rejected
from broker.client.connection import BrokerAway, Connection
from broker.server.conf import ServerConf, render
from broker.server.process import find
from broker.settings import BrokerSettings
from broker.topology import Topology
from broker.wire.streams import STREAM
from broker.wire.subjects import consumer_name
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, wait_until

Answer = TypeVar("Answer")

SECRET = "between these three"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server listens."""

    client: Address
    route: Address


@dataclass(frozen=True, slots=True)
class Node:
    """One of the servers."""

    name: str
    place: Place
    folder: Path
    process: Process

    @property
    def url(self) -> str:
        return f"nats://{self.place.client}"

    def kill(self) -> None:
        self.process.kill()

    def start(self) -> None:
        self.process.start()

    def wipe(self) -> None:
        """Lose the disk; the server must not be running."""
        shutil.rmtree(self.folder / "jetstream")
        (self.folder / "broker.json").unlink(missing_ok=True)


class Cluster:
    """The servers and what they say of themselves."""

    partitions = 2

    def __init__(self, folder: Path, processes: Processes) -> None:
        places = [_on_loopback() for _ in range(3)]
        self._routes = tuple(place.route for place in places)
        self._processes = processes
        self.nodes = {
            f"n{number}": self._node(f"n{number}", place, folder)
            for number, place in enumerate(places)
        }

    def _node(self, name: str, place: Place, folder: Path) -> Node:
        own = folder / name
        own.mkdir(parents=True)
        routes = tuple(f"nats-route://{route}" for route in self._routes)
        at = {"listen": place.client, "http": None, "cluster_listen": place.route}
        settings = BrokerSettings(server_name=name, cluster="c", route=routes, **at)
        conf = ServerConf(settings, own, 10**9, cluster_secret=SECRET)
        path = own / "nats-server.conf"
        text = render(conf).replace("logtime: false", "logtime: true")  # to tell what took how long
        path.write_text(text, "utf-8")
        process = self._processes.start(name, [find(None), "-c", path])
        return Node(name, place, own, process)

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes.values()]

    def insist(
        self,
        ask: Callable[[Connection], Awaitable[Answer]],
        seconds: float = 40,
        urls: Sequence[str] = (),
    ) -> Answer:
        """Ask until there is an answer, whoever leads meanwhile."""
        return asyncio.run(insist(urls or self.urls, ask, seconds))

    def info(self, stream: str = STREAM) -> dict[str, Any]:
        return self.insist(lambda connection: connection.api(f"STREAM.INFO.{stream}"))

    def leader(self, stream: str = STREAM) -> Node:
        """Return the server that leads a stream."""
        deadline = time.monotonic() + 40
        while not (name := self.info(stream)["cluster"].get("leader")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return self.nodes[name]

    def wait_until_whole(self, seconds: float = 180) -> None:
        """Return when all replicas of all streams and consumers have all that there is."""
        deadline = time.monotonic() + seconds
        streams = (config["name"] for config in Topology().streams())
        consumers = (consumer_name(number) for number in range(self.partitions))
        calls = [
            *(f"STREAM.INFO.{name}" for name in streams),
            *(f"CONSUMER.INFO.{STREAM}.{name}" for name in consumers),
        ]

        def told(call: str) -> dict[str, Any]:
            return self.insist(lambda connection: connection.api(call))

        while not all(_is_whole(told(call)) for call in calls):
            assert time.monotonic() < deadline, [told(call) for call in calls]
            time.sleep(0.1)


def _is_whole(info: dict[str, Any]) -> bool:
    replicas = info.get("cluster", {}).get("replicas", [])  # a consumer has none at first
    return len(replicas) == 2 and all(
        one["current"] and not one.get("lag", 0) and not one.get("offline") for one in replicas
    )


def _on_loopback() -> Place:
    return Place(Address("127.0.0.1", free_port()), Address("127.0.0.1", free_port()))


class Brokers(Cluster):
    """The same of three `logbroker run`, which set up all by themselves."""

    def _node(self, name: str, place: Place, folder: Path) -> Node:
        own = folder / name
        own.mkdir(parents=True)
        secret = own / "secret"
        secret.touch(0o600)
        secret.write_text(SECRET, "utf-8")
        process = self._processes.start(
            name,
            [
                *(sys.executable, "-m", "broker", "run", "--store-dir", own, "--http", ""),
                *("--listen", str(place.client), "--server-name", name, "--cluster", "c"),
                *("--cluster-listen", str(place.route), "--cluster-secret-file", secret),
                *(word for route in self._routes for word in ("--route", str(route))),
                *("--partitions", str(self.partitions), "--max-store", "1GB"),
            ],
        )
        return Node(name, place, own, process)

    def set_up(self) -> None:
        """Wait until all of them are ready."""
        for node in self.nodes.values():
            self.wait_until_ready(node)
        self.wait_until_whole()

    def wait_until_ready(self, node: Node, seconds: float = 60) -> None:
        wait_until(
            f"{node.name} is ready", (node.folder / "broker.json").exists, seconds, [node.process]
        )


async def insist(
    urls: Sequence[str], ask: Callable[[Connection], Awaitable[Answer]], seconds: float = 40
) -> Answer:
    connection = Connection(list(urls), "tests")
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await ask(connection)
                except (ConnectionLost, Rejected, BrokerAway, ConfigurationError, OperatorError):
                    await asyncio.sleep(0.1)
    finally:
        await connection.close()
