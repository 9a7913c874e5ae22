"""Faults of who gets in: credentials revoked, rotated and crowded out, books damaged, certificates renewed under traffic."""

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from broker.app.exits import OperatorError
from broker.client.access import Access
from broker.client.connection import BrokerAway, Connection, ConnectionLost, Rejected
from tests.chaos.faults.fault import Act, CannotStrike, End, FaultKind, within
from tests.chaos.program import Program
from tests.chaos.schedule import Kind
from tests.chaos.secured import CommandFailed, Keys, run_logbroker

if TYPE_CHECKING:
    from tests.chaos.world import Broker, World

__all__ = ["DAMAGES", "KINDS", "Damage"]

Damage = Callable[[bytes, random.Random], bytes]

_SECONDS = 60.0
_REFUSES_WITHIN = 15.0
_CROWD = 300
"""Connections; more than a secured world's brokers let hosts have."""


def _revoke_host(world: "World", chance: random.Random) -> End:
    """Take a host's credential away while it ships, and give it another one."""
    keys, (name, program) = _keys(world), chance.choice(_hosts(world))
    return _revoke(world, keys, "host", name, program)


def _revoke_receiver(world: "World", chance: random.Random) -> End:
    """Take a receiver's credential away while it receives, and give it another one."""
    keys, (name, program) = _keys(world), chance.choice(_receivers(world))
    return _revoke(world, keys, "receiver", name, program)


def _revoke(world: "World", keys: Keys, kind: str, name: str, program: Program) -> End:
    def end() -> None:
        _insist(world, f"{kind} {name} has a credential again", lambda: keys.give(kind, name))
        _take_over(program)

    return _tried(lambda: keys.revoke(kind, name), end)


def _rotate(kind: str, grace: str) -> Act:
    def act(world: "World", chance: random.Random) -> End:
        """Make a new secret: with a grace the program goes on by its old one until it is told, without it is locked out."""
        keys = _keys(world)
        name, program = chance.choice(_hosts(world) if kind == "host" else _receivers(world))

        def rotate() -> None:
            keys.rotate(kind, name, grace=grace)

        def end() -> None:
            _take_over(program)

        def mend() -> None:
            _insist(world, f"{kind} {name} has a new secret", rotate)
            end()

        return _tried(rotate, end, mend)

    return act


def _lock_out(world: "World", _: random.Random) -> End:
    """Revoke all hosts at once, and take it back by the store of before: nobody needs another secret."""
    keys = _keys(world)
    before = keys.folder / "credentials-before.json"

    def begin() -> End:
        before.write_bytes((keys.stores[0] / "credentials.json").read_bytes())
        return _tried(lambda: keys.revoke("host", "--all"), end)

    def end() -> None:
        _insist(world, "all hosts are let in again", lambda: keys.restore(before))

    return within(keys.changing, begin)


def _damage_credentials(world: "World", chance: random.Random) -> End:
    """Damage a broker's credential store and have it read again: it goes on by what it knows, and starts by no such store."""
    keys, broker = _keys(world), chance.choice(world.brokers)
    return within(keys.changing, lambda: _damaged(world, broker, chance))


def _damaged(world: "World", broker: "Broker", chance: random.Random) -> End:
    stored = broker.store / "credentials.json"
    whole, starts = stored.read_bytes(), broker.program.process.starts
    damage = chance.choice((*DAMAGES, None))

    def begin() -> None:
        if damage:
            stored.write_bytes(damage(whole, chance))
        else:
            stored.unlink()
        _hang_up(broker)

    def end() -> None:
        _insist(world, "the credential store is whole again", lambda: _put_back(stored, whole))
        _hang_up(broker)
        if broker.program.process.starts != starts:
            _help_up(broker.program)

    return _tried(begin, end)


def _put_back(stored: Path, whole: bytes) -> None:
    with stored.open("wb") as file:
        file.write(whole)
        file.flush()
        os.fsync(file.fileno())  # a fault of the disk may come next


def _help_up(program: Program) -> None:
    """Start a program again that finds the damage just now."""
    deadline = time.monotonic() + _REFUSES_WITHIN
    while not program.refused and time.monotonic() < deadline:
        time.sleep(0.1)
    program.go_on()


def _emptied(_: bytes, __: random.Random) -> bytes:
    return b""


def _cut(whole: bytes, chance: random.Random) -> bytes:
    return whole[: chance.randrange(1, len(whole) - 1)]


def _flipped(whole: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(whole))
    return whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :]


def _newer(whole: bytes, _: random.Random) -> bytes:
    return whole.replace(b'"version": 1', b'"version": 99', 1)


DAMAGES: tuple[Damage, ...] = (_emptied, _cut, _flipped, _newer)


def _renew(world: "World", chance: random.Random) -> None:
    """Sign a broker's certificates anew, as it does by itself a month before they end."""
    keys, broker = _keys(world), chance.choice(world.brokers)
    key = keys.stores[0] / "tls" / "authority.key"
    for _ in range(chance.randint(1, 3)):
        _now(
            lambda: run_logbroker(
                "tls", "renew", "--store-dir", broker.store, "--authority-key", key
            )
        )


def _storm(world: "World", chance: random.Random) -> None:
    """Change the credential store again and again while brokers are told to read it."""
    keys = _keys(world)
    for number in range(chance.randint(2, 4)):
        name = f"passer-by-{chance.randrange(1 << 24):06x}"
        _now(lambda name=name: keys.add("host", name))  # type: ignore[misc]
        for broker in world.brokers:
            for _ in range(chance.randint(0, 4)):
                _hang_up(broker)
        if number % 2:
            _now(lambda name=name: keys.revoke("host", name))  # type: ignore[misc]


def _crowd(world: "World", chance: random.Random) -> End:
    """Take all connections that hosts may have, and have a shipper connect again: it waits for room."""
    keys = _keys(world)
    name, program = chance.choice(_hosts(world))
    crowd = _Crowd(world.urls, Access(nkey=keys.file("host", name), tls_ca=keys.authority))
    with program.held():  # its place is to be taken, too
        program.process.kill()
        crowd.start()
    return crowd.stop


class _Crowd:
    """Connections that do nothing, in a thread of their own."""

    def __init__(self, urls: list[str], access: Access) -> None:
        self._urls, self._access = urls, access
        self._loop = asyncio.new_event_loop()
        self._connections: list[Connection] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="crowd")

    def start(self) -> None:
        """Come in until nobody more is let in."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._come(), self._loop).result(_SECONDS)

    def stop(self) -> None:
        """Leave."""
        asyncio.run_coroutine_threadsafe(self._leave(), self._loop).result(_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _come(self) -> None:
        deadline = self._loop.time() + _SECONDS / 2
        for number in range(_CROWD):
            if self._loop.time() > deadline:
                return
            connection = Connection(self._urls, f"crowd {number}", access=self._access)
            self._connections.append(connection)
            try:
                async with asyncio.timeout(5):
                    await connection.once()
            except (ConnectionLost, BrokerAway, Rejected, OperatorError, TimeoutError):
                return

    async def _leave(self) -> None:
        for connection in self._connections:
            await connection.close()


def _keys(world: "World") -> Keys:
    if world.keys is None:
        raise CannotStrike("the brokers are open")
    return world.keys


def _hosts(world: "World") -> list[tuple[str, Program]]:
    return [(host.name, host.shipper) for host in world.hosts if host.shipper]


def _receivers(world: "World") -> list[tuple[str, Program]]:
    return [(program.name.removeprefix("receiver-"), program) for program in world.receivers]


def _tried(change: Callable[[], object], end: End, mend: End | None = None) -> End:
    """Make a change and return its end; one that came only half way, as a broker or a disk is away, is mended at once."""
    try:
        change()
    except CommandFailed as failed:
        (mend or end)()
        raise CannotStrike(str(failed)[-300:]) from None
    except OSError:
        (mend or end)()
        raise
    return end


def _now(change: Callable[[], object]) -> None:
    """Make a change that need not be taken back."""
    try:
        change()
    except CommandFailed as failed:
        raise CannotStrike(str(failed)[-300:]) from None


def _insist(world: "World", what: str, change: Callable[[], object]) -> None:
    """Try until it is done, as an operator does; raises `TimeoutError`."""

    def is_done() -> bool:
        try:
            change()
        except (CommandFailed, OSError):  # the disk has trouble, too
            return False
        return True

    world.supervisor.wait(what, is_done, _SECONDS)


def _take_over(program: Program) -> None:
    """Have a program begin to use the new file that is in its place: those that were given a key's path do so by themselves."""
    if "--nkey" not in program.process.arguments:
        with suppress(ProcessLookupError):
            program.process.terminate()


def _hang_up(broker: "Broker") -> None:
    with suppress(ProcessLookupError):
        broker.program.process.hang_up()


def _kind(name: str, act: Act, lasts: tuple[float, float] = (0.0, 0.0)) -> FaultKind:
    return FaultKind(Kind(name, lasts=lasts, needs=frozenset({"secured"})), act)


KINDS = (
    _kind("revoke-host", _revoke_host, (0.5, 8.0)),
    _kind("revoke-receiver", _revoke_receiver, (0.5, 8.0)),
    _kind("rotate-host", _rotate("host", "1d"), (0.0, 6.0)),
    _kind("rotate-host-at-once", _rotate("host", "0"), (0.0, 6.0)),
    _kind("rotate-receiver", _rotate("receiver", "1d"), (0.0, 6.0)),
    _kind("rotate-receiver-at-once", _rotate("receiver", "0"), (0.0, 6.0)),
    _kind("lock-out", _lock_out, (0.5, 8.0)),
    _kind("damage-credentials", _damage_credentials, (0.5, 8.0)),
    _kind("renew-certificate", _renew),
    _kind("credentials-storm", _storm),
    _kind("crowd", _crowd, (4.0, 20.0)),
)
