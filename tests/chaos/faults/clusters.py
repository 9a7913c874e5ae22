"""Faults of three brokers: the leader or all are hit, or the lines between them; a disk is lost.

One disk is lost at a time, and only while the two others have everything: three copies promise no
more.
"""

import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from broker.topology import Topology
from nats_logship.wire.streams import STREAM
from tests.chaos.fault import CannotStrike, Chance, add, alone, fault
from tests.chaos.faults.lines import Places, at, lines_of, swallow
from tests.chaos.faults.processes import send, server_of, stop
from tests.chaos.world import Broker, World
from tests.support.commands import retried

_PATIENCE = 20.0  # seconds until nobody is said to lead
_HEALTHY = 30.0  # seconds until copies are said not to be whole
_FILLED = 120.0  # seconds that an empty disk may take to be filled
_LONGEST_PAUSE = 2.0  # seconds between the starts of two brokers

_a_disk_is_lost = threading.Lock()


def _info(world: World, stream: str) -> dict[str, Any]:
    try:
        return dict(world.ask(lambda c: c.api(f"STREAM.INFO.{stream}"), _PATIENCE))
    except TimeoutError:
        raise CannotStrike("the brokers do not answer") from None


def _leader(world: World, stream: str = STREAM) -> Broker:
    leader = _info(world, stream)["cluster"].get("leader")
    for broker in world.brokers:
        if broker.name == leader:
            return broker
    raise CannotStrike("nobody leads")


@fault((0.0, 14.0), "cluster")
def kill_leader(world: World, chance: Chance) -> Iterator[None]:
    """Kill the leader of lines, or ask it to end, and start it again at the end only."""
    program = _leader(world).program
    with program.held():
        send(program.process.pid, chance.choice((signal.SIGKILL, signal.SIGTERM)))
        yield


@fault((1.0, 20.0), "cluster")
def stop_leader(world: World, chance: Chance) -> Iterator[None]:
    return stop(world, chance, lambda world, _: server_of(_leader(world).program))


@fault((0.0, 8.0), "cluster")
def kill_all_brokers(world: World, chance: Chance) -> Iterator[None]:
    """Kill all brokers at once, and start them again one by one."""
    with ExitStack() as stack:
        for program in world.broker_programs:
            stack.callback(time.sleep, chance.uniform(0, _LONGEST_PAUSE))
            stack.enter_context(program.held())
            program.process.kill()
        yield


def _cut(world: World, chance: Chance, lines: Places) -> Iterator[None]:
    return at(world, chance, swallow, lines)


for _name, _lines in {  # clients still get in, but where the leader is isolated
    "cut-off-leader": lambda world, _: [_leader(world).machine.routes],
    "isolate-leader": lambda world, _: lines_of(_leader(world)),
    "cut-all-routes": lambda world, _: [broker.machine.routes for broker in world.brokers],
}.items():
    add(_name, partial(_cut, lines=_lines), (1.0, 30.0), "cluster", "shaping")


@fault((0.0, 12.0), "cluster")
def wipe_broker(world: World, chance: Chance) -> Iterator[None]:
    """Kill any broker, lose its disk, and start it again with an empty one."""
    with alone(_a_disk_is_lost, "another disk was lost just now"):
        broker = chance.choice(world.brokers)
        with world.disks[f"broker-{broker.name}"].trouble(), broker.program.held():
            _wait_until_whole(world, 2, _HEALTHY)
            broker.program.kill_tree()
            _wait_until_whole(world, 1, _HEALTHY)
            _lose_disk(broker.store)
            yield
        with suppress(CannotStrike):
            _wait_until_whole(world, 2, _FILLED)


def _lose_disk(store: Path) -> None:
    """Empty the store but for what an operator puts back: credentials and certificates."""
    for path in retried(lambda: list(store.iterdir())):  # the disk may have trouble just now
        if path.name not in {"credentials.json", "tls"}:
            retried(partial(_remove, path))


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _wait_until_whole(world: World, others: int, seconds: float) -> None:
    """Wait until `others` copies of every stream are whole; raises `CannotStrike`."""
    deadline = time.monotonic() + seconds
    streams = [config["name"] for config in Topology().streams()]
    while not all(_has_copies(_info(world, name), others) for name in streams):
        if time.monotonic() > deadline:
            raise CannotStrike("the copies are not whole")
        time.sleep(0.2)


def _has_copies(info: dict[str, Any], others: int) -> bool:
    replicas = info["cluster"].get("replicas") or []
    well = [r for r in replicas if r["current"] and not r.get("lag", 0) and not r.get("offline")]
    return bool(info["cluster"].get("leader")) and len(well) >= others
