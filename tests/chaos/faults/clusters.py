"""Faults that take three brokers: the one that leads is hit, or all of them, or the lines between them; a disk is lost.

No more than one disk is ever lost at a time, and only while the two others have all there is: with three copies that is what
is promised, and more would take lines on purpose.
"""

import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.client.connection import Connection
from broker.topology import Topology
from broker.wire.streams import OFFSETS_BUCKET, STREAM
from tests.chaos.faults.fault import Act, CannotStrike, End, FaultKind
from tests.chaos.faults.processes import is_server, send
from tests.chaos.losing import EVERYTHING, Loss
from tests.chaos.schedule import Kind

if TYPE_CHECKING:
    from tests.chaos.world import Broker, World

__all__ = ["KINDS"]

_PATIENCE = 20.0  # seconds until nobody is said to lead
_HEALTHY = 30.0  # seconds until copies are said not to be whole
_FILLED = 120.0  # seconds that an empty disk may take to be filled
_GOES_DOWN = 10.0  # seconds for the server of a broker that was killed
_LONGEST_PAUSE = 2.0  # seconds between the starts of two brokers

_a_disk_is_lost = threading.Lock()

Choose = Callable[["World", random.Random], "Broker"]


def _leader(world: "World", stream: str) -> "Broker":
    info = _told(world, f"STREAM.INFO.{stream}", _PATIENCE)
    leader = info["cluster"].get("leader")
    for broker in world.brokers:
        if broker.name == leader:
            return broker
    raise CannotStrike("nobody leads")


def _told(world: "World", call: str, seconds: float) -> dict[str, Any]:
    def ask(connection: Connection) -> Any:
        return connection.api(call)

    try:
        return dict(world.ask(ask, seconds))
    except TimeoutError:
        raise CannotStrike("the brokers do not answer") from None


def _of_lines(world: "World", chance: random.Random) -> "Broker":
    return _leader(world, STREAM)


def _of_offsets(world: "World", chance: random.Random) -> "Broker":
    return _leader(world, f"KV_{OFFSETS_BUCKET}")


def _follower(world: "World", chance: random.Random) -> "Broker":
    leader = _leader(world, STREAM)
    return chance.choice([broker for broker in world.brokers if broker is not leader])


def _dead_meanwhile(choose: Choose, number: int) -> Act:
    def act(world: "World", chance: random.Random) -> End:
        """Kill such a broker, or ask it to end, and start it again at the end only."""
        program = choose(world, chance).program
        program.hold()
        try:
            send(program.process.pid, number)
        except CannotStrike:
            program.release()
            raise
        return program.release

    return act


def stop_leader(world: "World", chance: random.Random) -> End:
    """Stop the server of the leader, as a machine does that swaps: its connections stay open."""
    program = _of_lines(world, chance).program
    servers = [pid for pid in program.process.tree() if is_server(pid)]
    if not servers:
        raise CannotStrike("it does not run")
    for pid in servers:
        send(pid, signal.SIGSTOP)

    def end() -> None:
        for pid in servers:
            with suppress(CannotStrike):  # somebody else has killed it meanwhile
                send(pid, signal.SIGCONT)

    return end


def kill_all_brokers(world: "World", chance: random.Random) -> End:
    """Kill all brokers at once, and start them again one by one."""
    programs = [broker.program for broker in world.brokers]
    for program in programs:
        program.hold()
    for program in programs:
        with suppress(CannotStrike):  # it is dead already
            send(program.process.pid, signal.SIGKILL)
    pauses = [chance.uniform(0, _LONGEST_PAUSE) for _ in programs]

    def end() -> None:
        for program, pause in zip(programs, pauses, strict=True):
            time.sleep(pause)
            program.release()

    return end


def wipe_broker(world: "World", chance: random.Random) -> End:
    """Kill any broker, lose its disk, and start it again with an empty one."""
    if not _a_disk_is_lost.acquire(blocking=False):
        raise CannotStrike("another disk was lost just now")
    broker = chance.choice(world.brokers)
    broker.program.hold()
    try:
        _wait_until_whole(world, 2, _HEALTHY)
        _die(broker)
        _wait_until_whole(world, 1, _HEALTHY)
        kept = _given(broker.store)
        _empty(broker.store)
        _give(broker.store, kept)
    except BaseException:
        broker.program.release()
        _a_disk_is_lost.release()
        raise

    def end() -> None:
        broker.program.release()
        with _a_disk_is_lost_until_now(), suppress(CannotStrike):
            _wait_until_whole(world, 2, _FILLED)

    return end


@contextmanager
def _a_disk_is_lost_until_now() -> Iterator[None]:
    try:
        yield
    finally:
        _a_disk_is_lost.release()


def _die(broker: "Broker") -> None:
    process = broker.program.process
    send(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + _GOES_DOWN
    while process.tree():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{broker.name} was killed, and something of it runs on")
        time.sleep(0.05)


def _given(store: Path) -> dict[Path, bytes]:
    """Return what an operator has put there, and would put there again: the credential store, and certificates."""
    paths = (store / "credentials.json", *(store / "tls").glob("*"))
    return {path: path.read_bytes() for path in paths if path.is_file()}


def _give(store: Path, kept: dict[Path, bytes]) -> None:
    for path, content in kept.items():
        path.parent.mkdir(mode=0o750, exist_ok=True)
        path.touch(0o600)
        path.write_bytes(content)


def _empty(folder: Path) -> None:
    """Remove all that is in it; where the disk refuses just now, what is left of it goes when that is over."""
    deadline = time.monotonic() + _HEALTHY
    while left := list(folder.iterdir()):
        try:
            for path in left:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _wait_until_whole(world: "World", others: int, seconds: float) -> None:
    """Return once the leader of every stream counts so many others that have all there is; raises `CannotStrike`."""
    deadline = time.monotonic() + seconds
    streams = [config["name"] for config in Topology().streams()]
    while not all(
        _has_copies(_told(world, f"STREAM.INFO.{name}", _PATIENCE), others) for name in streams
    ):
        if time.monotonic() > deadline:
            raise CannotStrike("the copies are not whole")
        time.sleep(0.2)


def _has_copies(info: dict[str, Any], others: int) -> bool:
    replicas = info["cluster"].get("replicas") or []
    well = [
        one
        for one in replicas
        if one["current"] and not one.get("lag", 0) and not one.get("offline")
    ]
    return bool(info["cluster"].get("leader")) and len(well) >= others


def _cut_off(choose: Choose) -> Act:
    def act(world: "World", chance: random.Random) -> End:
        """Cut such a broker off from the others; clients still get in there."""
        return choose(world, chance).machine.routes.lose(EVERYTHING)

    return act


def isolate_leader(world: "World", chance: random.Random) -> End:
    """Cut the leader off from everybody."""
    machine = _of_lines(world, chance).machine
    return _together([machine.routes.lose(EVERYTHING), machine.clients.lose(EVERYTHING)])


def cut_all_routes(world: "World", chance: random.Random) -> End:
    """Cut all brokers off from each other; clients get in everywhere, and nobody leads."""
    return _together([broker.machine.routes.lose(EVERYTHING) for broker in world.brokers])


def one_way_between_brokers(world: "World", chance: random.Random) -> End:
    """Lose what one broker sends to another one, and nothing of what comes back."""
    sender, receiver = chance.sample(world.brokers, 2)
    return receiver.machine.routes.inward.lose(Loss(source=sender.machine.route.host))


def unheard_leader(world: "World", chance: random.Random) -> End:
    """Lose what the leader sends to the others: it hears them, and they hear nothing of it."""
    return _of_lines(world, chance).machine.routes.outward.lose(EVERYTHING)


def _together(ends: Iterable[End]) -> End:
    ends = list(ends)

    def end() -> None:
        for each in ends:
            each()

    return end


_CLUSTER = frozenset({"cluster"})
_LINES = frozenset({"cluster", "shaping"})
_CUT = (1.0, 30.0)

KINDS = (
    FaultKind(
        Kind("kill-leader", (0.0, 14.0), needs=_CLUSTER), _dead_meanwhile(_of_lines, signal.SIGKILL)
    ),
    FaultKind(
        Kind("kill-offsets-leader", (0.0, 14.0), needs=_CLUSTER),
        _dead_meanwhile(_of_offsets, signal.SIGKILL),
    ),
    FaultKind(
        Kind("kill-follower", (0.0, 14.0), needs=_CLUSTER),
        _dead_meanwhile(_follower, signal.SIGKILL),
    ),
    FaultKind(
        Kind("end-leader", (0.0, 8.0), needs=_CLUSTER), _dead_meanwhile(_of_lines, signal.SIGTERM)
    ),
    FaultKind(Kind("stop-leader", (1.0, 20.0), needs=_CLUSTER), stop_leader),
    FaultKind(Kind("kill-all-brokers", (0.0, 8.0), needs=_CLUSTER), kill_all_brokers),
    FaultKind(Kind("wipe-broker", (0.0, 12.0), needs=_CLUSTER), wipe_broker),
    FaultKind(Kind("cut-off-leader", _CUT, needs=_LINES), _cut_off(_of_lines)),
    FaultKind(Kind("cut-off-follower", _CUT, needs=_LINES), _cut_off(_follower)),
    FaultKind(Kind("unheard-leader", _CUT, needs=_LINES), unheard_leader),
    FaultKind(Kind("isolate-leader", _CUT, needs=_LINES), isolate_leader),
    FaultKind(Kind("cut-all-routes", _CUT, needs=_LINES), cut_all_routes),
    FaultKind(Kind("one-way-between-brokers", _CUT, needs=_LINES), one_way_between_brokers),
)
