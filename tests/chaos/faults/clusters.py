"""Faults that take three brokers: the one that leads is hit, or all of them, or the lines between them; a disk is lost.

No more than one disk is ever lost at a time, and only while the two others have all there is: with three copies that is what
is promised, and more would take lines on purpose.
"""

import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.topology import Topology
from broker.wire.streams import OFFSETS_BUCKET, STREAM
from tests.chaos.faults.fault import Act, CannotStrike, Chance, End, Family, together, within
from tests.chaos.faults.processes import send, server_of
from tests.chaos.networks import EVERYTHING, Loss

if TYPE_CHECKING:
    from tests.chaos.world import Broker, World

__all__ = ["FAMILY"]

FAMILY = Family()
_PATIENCE = 20.0  # seconds until nobody is said to lead
_HEALTHY = 30.0  # seconds until copies are said not to be whole
_FILLED = 120.0  # seconds that an empty disk may take to be filled
_GOES_DOWN = 10.0  # seconds for the server of a broker that was killed
_LONGEST_PAUSE = 2.0  # seconds between the starts of two brokers
_DOWN, _CUT = (0.0, 14.0), (1.0, 30.0)

_a_disk_is_lost = threading.Lock()


def _told(world: "World", stream: str) -> dict[str, Any]:
    try:
        return dict(world.ask(lambda c: c.api(f"STREAM.INFO.{stream}"), _PATIENCE))
    except TimeoutError:
        raise CannotStrike("the brokers do not answer") from None


def _leader(world: "World", stream: str = STREAM) -> "Broker":
    leader = _told(world, stream)["cluster"].get("leader")
    for broker in world.brokers:
        if broker.name == leader:
            return broker
    raise CannotStrike("nobody leads")


def _of_lines(world: "World", _: Chance) -> "Broker":
    return _leader(world)


def _of_offsets(world: "World", _: Chance) -> "Broker":
    return _leader(world, f"KV_{OFFSETS_BUCKET}")


def _follower(world: "World", chance: Chance) -> "Broker":
    leader = _leader(world)
    return chance.choice([broker for broker in world.brokers if broker is not leader])


def _down(choose: "Callable[[World, Chance], Broker]", number: int) -> Act:
    def act(world: "World", chance: Chance) -> End:
        program = choose(world, chance).program

        def begin() -> End:
            send(program.process.pid, number)
            return together(())

        return within(program.held(), begin)

    return act


def _cut_off(choose: "Callable[[World, Chance], Broker]") -> Act:
    return lambda world, chance: choose(world, chance).machine.routes.lose(EVERYTHING)


for _name, _choose, _number, _words in (
    ("kill-leader", _of_lines, signal.SIGKILL, "Kill the leader of the stream"),
    ("kill-offsets-leader", _of_offsets, signal.SIGKILL, "Kill the leader of the offsets"),
    ("kill-follower", _follower, signal.SIGKILL, "Kill a broker that follows"),
    ("end-leader", _of_lines, signal.SIGTERM, "Ask the leader to end"),
):
    _act = _down(_choose, _number)
    FAMILY.add(
        _name, _act, _DOWN, "cluster", words=f"{_words}, and start it again at the end only."
    )
_words = "Cut such a broker off from the others; clients still get in there."
FAMILY.add("cut-off-leader", _cut_off(_of_lines), _CUT, "cluster", "shaping", words=_words)
FAMILY.add("cut-off-follower", _cut_off(_follower), _CUT, "cluster", "shaping", words=_words)


@FAMILY.kind((1.0, 20.0), "cluster")
def stop_leader(world: "World", _: Chance) -> End:
    """Stop the server of the leader, as a machine does that swaps: its connections stay open."""
    pid = server_of(_leader(world).program)
    send(pid, signal.SIGSTOP)

    def end() -> None:
        with suppress(CannotStrike):  # somebody else has killed it meanwhile
            send(pid, signal.SIGCONT)

    return end


@FAMILY.kind((0.0, 8.0), "cluster")
def kill_all_brokers(world: "World", chance: Chance) -> End:
    """Kill all brokers at once, and start them again one by one."""
    programs = world.broker_programs
    for program in programs:
        program.hold()
        program.process.kill()

    def end() -> None:
        for program in programs:
            time.sleep(chance.uniform(0, _LONGEST_PAUSE))
            program.release()

    return end


@FAMILY.kind((0.0, 12.0), "cluster")
def wipe_broker(world: "World", chance: Chance) -> End:
    """Kill any broker, lose its disk, and start it again with an empty one."""
    if not _a_disk_is_lost.acquire(blocking=False):
        raise CannotStrike("another disk was lost just now")
    broker = chance.choice(world.brokers)
    broker.program.hold()
    try:
        _wait_until_whole(world, 2, _HEALTHY)
        _die(broker)
        _wait_until_whole(world, 1, _HEALTHY)
        _lose_disk(broker.store)
    except BaseException:
        broker.program.release()
        _a_disk_is_lost.release()
        raise

    def end() -> None:
        broker.program.release()
        try:
            with suppress(CannotStrike):
                _wait_until_whole(world, 2, _FILLED)
        finally:
            _a_disk_is_lost.release()

    return end


def _die(broker: "Broker") -> None:
    process = broker.program.process
    send(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + _GOES_DOWN
    while process.tree():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{broker.name} was killed, and something of it runs on")
        time.sleep(0.05)


def _lose_disk(store: Path) -> None:
    """Empty the store but for what an operator puts there again: the credential store, and certificates."""
    paths = (store / "credentials.json", *(store / "tls").glob("*"))
    kept = {path: path.read_bytes() for path in paths if path.is_file()}
    _empty(store)
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
    while not all(_has_copies(_told(world, name), others) for name in streams):
        if time.monotonic() > deadline:
            raise CannotStrike("the copies are not whole")
        time.sleep(0.2)


def _has_copies(info: dict[str, Any], others: int) -> bool:
    replicas = info["cluster"].get("replicas") or []
    well = [r for r in replicas if r["current"] and not r.get("lag", 0) and not r.get("offline")]
    return bool(info["cluster"].get("leader")) and len(well) >= others


@FAMILY.kind(_CUT, "cluster", "shaping")
def isolate_leader(world: "World", _: Chance) -> End:
    """Cut the leader off from everybody."""
    machine = _leader(world).machine
    return together([machine.routes.lose(EVERYTHING), machine.clients.lose(EVERYTHING)])


@FAMILY.kind(_CUT, "cluster", "shaping")
def cut_all_routes(world: "World", _: Chance) -> End:
    """Cut all brokers off from each other; clients get in everywhere, and nobody leads."""
    return together([broker.machine.routes.lose(EVERYTHING) for broker in world.brokers])


@FAMILY.kind(_CUT, "cluster", "shaping")
def one_way_between_brokers(world: "World", chance: Chance) -> End:
    """Lose what one broker sends to another one, and nothing of what comes back."""
    sender, receiver = chance.sample(world.brokers, 2)
    return receiver.machine.routes.inward.lose(Loss(source=sender.machine.route.host))


@FAMILY.kind(_CUT, "cluster", "shaping")
def unheard_leader(world: "World", _: Chance) -> End:
    """Lose what the leader sends to the others: it hears them, and they hear nothing of it."""
    return _leader(world).machine.routes.outward.lose(EVERYTHING)
