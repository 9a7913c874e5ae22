"""`logbroker run`: a store, a nats-server and its topology, from the start to a signal. The wiring; decides nothing.

settings ─▶ store (lock, room) ─▶ conf ─▶ server (check, start, ports) ─▶ provision ─▶ ready … signal ─▶ end
"""

import asyncio
import json
import logging
import os
import platform
import signal
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.connecting.connection import Connection, ConnectionLost, Rejected
from broker.declaring.provision import apply
from broker.exits import OperatorError
from broker.serving.binary import find
from broker.serving.conf import ServerConf, render, store_limit, stream_limit
from broker.serving.server import Ports, Server, check, started
from broker.serving.store import Space, held_store, measure
from broker.settings import BrokerSettings
from broker.sizes import format_size
from broker.topology import STREAM, Topology
from broker.whole import write_whole

__all__ = ["serve"]

_READY = "broker.json"
_CONF = "nats-server.conf"
_PATIENCE = 10.0  # seconds between two words about a long recovery
logger = logging.getLogger(__name__)


async def serve(settings: BrokerSettings, folder: Path) -> None:
    """Run the broker on `folder`, absolute, until SIGTERM or SIGINT; raises `OperatorError` when it cannot start or ends by itself."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # nothing to reload yet
    binary = find(settings.nats_server)
    with held_store(folder) as lock:
        (folder / _READY).unlink(missing_ok=True)
        space = measure(folder)
        limit = _limit(settings, space)
        conf = _configure(settings, folder, max(limit, space.promised))
        topology = _topology(settings, limit)
        path = folder / _CONF
        write_whole(path, render(conf))
        await check(binary, path)
        try:
            async with started(binary, path, int(settings.memory), lock) as server:
                loop.add_signal_handler(signal.SIGHUP, server.reload)
                await _first_of(stop.wait(), server.attend(), _work(conf, topology, server))
                logger.info("stopping")
        finally:
            (folder / _READY).unlink(missing_ok=True)


def _limit(settings: BrokerSettings, space: Space) -> int:
    if settings.max_store is not None:
        return int(settings.max_store)
    reserve = None if settings.reserve is None else int(settings.reserve)
    return store_limit(space.free, space.held, space.total, reserve)


def _topology(settings: BrokerSettings, limit: int) -> Topology:
    bound = stream_limit(limit, settings.partitions, settings.max_bytes)
    if settings.max_bytes is not None and bound < settings.max_bytes:
        logger.warning(
            "the stream gets %s instead of --max-bytes %s: the store has no room for more",
            format_size(bound),
            format_size(settings.max_bytes),
        )
    return replace(settings.topology(), max_bytes=bound)


def _configure(settings: BrokerSettings, folder: Path, max_store: int) -> ServerConf:
    # a limit below what a stream was promised earlier makes the server refuse every change of that stream, the one
    # to a smaller promise included; so it is at least that, and the stream's own limit follows the disk
    for address in filter(None, (settings.listen, settings.http)):
        if not address.is_loopback:
            logger.warning("%s is open to the network, without credentials", address)
    return ServerConf(
        name=settings.server_name or _machine(),
        listen=settings.listen,
        http=settings.http,
        folder=str(folder),
        max_store=max_store,
    )


def _machine() -> str:
    return platform.node().replace(".", "-") or "logbroker"


async def _work(conf: ServerConf, topology: Topology, server: Server) -> None:
    """Make the broker ready, say so, and wait for ever."""
    ports = await _patiently(server.ports())
    address = f"nats://{conf.listen.reached_at(ports.client)}"
    connection = Connection([address], "logbroker")
    try:
        await _provision(connection, topology)
        info = await connection.api(f"STREAM.INFO.{STREAM}")
    except (ConnectionLost, Rejected) as error:
        raise OperatorError(
            f"nats-server at {address} does not answer as it should: {error}"
        ) from None
    finally:
        await connection.close()
    _write_ready(conf, ports, server)
    logger.info(
        "ready: %s, store %s, stream %s of at most %s, %d partitions, %d messages",
        address,
        conf.folder,
        STREAM,
        format_size(info["config"]["max_bytes"]),
        topology.partitions,
        info["state"]["messages"],
    )
    await asyncio.Event().wait()


async def _provision(connection: Connection, topology: Topology) -> None:
    done = await apply(connection, topology)
    for step in done.steps:
        for change in step.changes:
            logger.info(
                "%s %s: %s is now %s, was %s",
                step.kind.value,
                step.name,
                change.field,
                change.after,
                change.before,
            )


def _write_ready(conf: ServerConf, ports: Ports, server: Server) -> None:
    http = conf.http.reached_at(ports.http) if conf.http and ports.http else None
    content = {
        "server": f"nats://{conf.listen.reached_at(ports.client)}",
        "http": f"http://{http}" if http else None,
        "store_dir": conf.folder,
        "pid": os.getpid(),
        "nats_server_pid": server.pid,
    }
    write_whole(Path(conf.folder) / _READY, json.dumps(content, indent=2) + "\n")


async def _patiently(call: Coroutine[Any, Any, Ports]) -> Ports:
    """Wait for the server to listen, and say now and then that it is still bringing back its store."""
    waiting = asyncio.ensure_future(call)
    try:
        while True:
            done, _ = await asyncio.wait([waiting], timeout=_PATIENCE)
            if done:
                return waiting.result()
            logger.info("nats-server is still bringing back its store")
    finally:
        waiting.cancel()


async def _first_of(*calls: Coroutine[Any, Any, object]) -> None:
    """Return, or raise, as the first of the calls does, after the others have ended."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
