"""Brokers that are measured against each other: one by `logbroker run`, and bare nats-servers with the same stream."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cpu import named
from bench.ports import free_port
from bench.processes import Process, Processes, wait_until
from bench.suite import Suite
from broker.client.connection import Connection
from broker.provision.apply import apply
from broker.topology import Topology
from broker.wire.streams import MAX_PAYLOAD, STREAM

__all__ = ["ALWAYS", "BY_DEFAULT", "Contender", "NoStrace", "bare", "provisioned", "slowed"]

ALWAYS = "always"
BY_DEFAULT = "2m"
_SERVER = "nats-server"


class NoStrace(Exception):
    """Calls of the system cannot be slowed down here; the message says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """A broker with an empty stream; `pid` is nats-server's, `process` what was started to have it."""

    name: str
    process: Process
    pid: int
    port: int
    address: str = "127.0.0.1"

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"nats://{self.address}:{self.port}"

    async def stream(self) -> dict[str, Any]:
        """Return how the stream is configured there, less what the server itself notes about it."""
        async with self.connected() as connection:
            config: dict[str, Any] = (await connection.api(f"STREAM.INFO.{STREAM}"))["config"]
        return {key: value for key, value in config.items() if key != "metadata"}

    async def empty(self) -> None:
        """Remove what the stream holds."""
        async with self.connected() as connection:
            await connection.api(f"STREAM.PURGE.{STREAM}")

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Connection]:
        """Connect to it, until the end of the block."""
        connection = Connection([self.url], "bench")
        try:
            await connection.once()
            yield connection
        finally:
            await connection.close()


def provisioned(
    name: str,
    folder: Path,
    processes: Processes,
    max_bytes: int,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Contender:
    """Start a broker as operators do, in a folder of its own; returns when the stream is there."""
    suite = Suite(folder / name, processes, partitions=1)
    words = ("--max-bytes", str(max_bytes), *options)
    process = suite.start_broker(*words, name=name, environment=environment)
    return _found(name, process, int(suite.url.rpartition(":")[2]))


def bare(
    name: str,
    folder: Path,
    processes: Processes,
    max_bytes: int,
    sync: str = ALWAYS,
    before: Sequence[str] = (),
    address: str = "127.0.0.1",
) -> Contender:
    """Start nats-server with the least that rounds need, and have the same stream there; `before` is what runs it."""
    home, port = folder / name, free_port()
    home.mkdir()
    conf = home / "server.conf"
    conf.write_text(
        f'listen: "{address}:{port}"\n'
        f"max_payload: {MAX_PAYLOAD}\n"
        f'jetstream {{ store_dir: "{home}/store", sync_interval: "{sync}",\n'
        "  limits { max_request_batch: 10000 } }\n",
        "utf-8",
    )
    binary = Path(sys.executable).with_name(_SERVER)
    process = processes.start(name, [*before, binary, "-c", conf])
    wait_until("it is ready", lambda: b"Server is ready" in process.log.read_bytes(), 30, [process])
    contender = _found(name, process, port, address)
    asyncio.run(_provision(contender, max_bytes))
    return contender


def slowed(milliseconds: float) -> list[str]:
    """Return what runs a program with each fsync longer by so much; raises `NoStrace`.

    A thread that syncs is held by the kernel's tracing on its way back, and others go on: as with a disk that takes its time.
    All other calls pass without a stop (seccomp), and the program stays the child of who starts it (-D).
    """
    calls = "fsync,fdatasync"
    words = [
        *("strace", "-D", "-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null", "-e", f"trace={calls}"),
        *("-e", f"inject={calls}:delay_exit={milliseconds * 1000:.0f}"),
    ]
    try:
        subprocess.run([*words, sys.executable, "-c", ""], check=True, capture_output=True)
    except FileNotFoundError:
        raise NoStrace("there is no strace here (apt install strace)") from None
    except subprocess.CalledProcessError as error:
        raise NoStrace(error.stderr.decode(errors="replace").strip()) from None
    return words


async def _provision(contender: Contender, max_bytes: int) -> None:
    async with contender.connected() as connection:
        await apply(connection, Topology(partitions=1, max_bytes=max_bytes))


def _found(name: str, process: Process, port: int, address: str = "127.0.0.1") -> Contender:
    pid = named(process, _SERVER)
    if pid is None:
        raise RuntimeError(f"{name} runs no {_SERVER}")
    return Contender(name, process, pid, port, address)
