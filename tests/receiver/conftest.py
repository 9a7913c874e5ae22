"""One Spark for all tests of this folder (it takes seconds to start, and a process holds one at a time), a partition, a scene."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from broker.client.connection import Connection
from broker.topology import Topology
from tests.conftest import Server, apply_topology
from tests.receiver.partition import Partition
from tests.receiver.scene import Scene
from tests.receiver.sql import spark_session
from tests.support.processes import Processes

Store = Callable[..., list[int]]
Call = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[2]") as session:
        yield session


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    """Return partition 0, claimed, of which nothing was received."""
    made = Partition(logs_url, tmp_path)
    made.claim()
    return made


@pytest.fixture
def scene(own_server: Server, processes: Processes, tmp_path: Path) -> Scene:
    apply_topology(own_server.url, Topology(partitions=2))
    return Scene(own_server, processes, tmp_path)


@pytest.fixture
def store() -> Store:
    """Return a function that publishes messages one by one, acknowledged, and returns their sequences."""

    def publish_all(url: str, *messages: tuple[str, bytes, dict[str, str] | None]) -> list[int]:
        async def publish() -> list[int]:
            connection = Connection([url], "tests")
            try:
                answers = [await connection.ask(*message) for message in messages]
            finally:
                await connection.close()
            return [int(answer["seq"]) for answer in answers]

        return asyncio.run(publish())

    return publish_all


@pytest.fixture
def call() -> Call:
    """Return a function that calls the JetStream API of a server and returns its answer."""

    def call_api(url: str, name: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            connection = Connection([url], "tests")
            try:
                return await connection.api(name, body)
            finally:
                await connection.close()

        return asyncio.run(ask())

    return call_api
