"""Faults of who gets in: credentials revoked, rotated and crowded out, stores damaged, certificates renewed under traffic."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from broker.app.exits import OperatorError
from broker.client.access import Access
from broker.client.connection import BrokerAway, Connection, ConnectionLost, Rejected
from tests.chaos.commands import CommandFailed, run_command
from tests.chaos.faults.fault import Act, CannotStrike, Chance, End, Family, within
from tests.chaos.program import Program

if TYPE_CHECKING:
    from tests.chaos.secured import Keys
    from tests.chaos.world import Broker, World

__all__ = ["DAMAGES", "FAMILY", "Damage"]

FAMILY = Family()
Damage = Callable[[bytes, Chance], bytes]

_SECONDS = 60.0
_REFUSES_WITHIN = 15.0
_CROWD = 300
"""Connections; more than a secured world's brokers let hosts have."""


def _keys(world: "World") -> "Keys":
    if world.keys is None:
        raise CannotStrike("the brokers are open")
    return world.keys


def _whom(world: "World", kind: str, chance: Chance) -> tuple[str, Program]:
    if kind == "host":
        return chance.choice([(host.name, host.shipper) for host in world.hosts if host.shipper])
    program = chance.choice(world.receivers)
    return program.name.removeprefix("receiver-"), program


def _revoke(kind: str) -> Act:
    def act(world: "World", chance: Chance) -> End:
        keys, (name, program) = _keys(world), _whom(world, kind, chance)

        def end() -> None:
            _insist(world, f"{kind} {name} has a credential again", lambda: keys.give(kind, name))
            _take_over(program)

        return _tried(lambda: keys.revoke(kind, name), end)

    return act


def _rotate(kind: str, grace: str) -> Act:
    def act(world: "World", chance: Chance) -> End:
        keys, (name, program) = _keys(world), _whom(world, kind, chance)

        def rotate() -> None:
            keys.rotate(kind, name, grace=grace)

        def mend() -> None:
            _insist(world, f"{kind} {name} has a new secret", rotate)
            _take_over(program)

        return _tried(rotate, lambda: _take_over(program), mend)

    return act


for _kind in ("host", "receiver"):
    _words = f"Take a {_kind}'s credential away while it is at work, and give it another one."
    FAMILY.add(f"revoke-{_kind}", _revoke(_kind), (0.5, 8.0), "secured", words=_words)
    _words = f"Make a new secret for a {_kind}, which goes on by its old one until it is told."
    FAMILY.add(f"rotate-{_kind}", _rotate(_kind, "1d"), (0.0, 6.0), "secured", words=_words)
    _words = f"Make a new secret for a {_kind}, which is locked out until it is told."
    FAMILY.add(f"rotate-{_kind}-at-once", _rotate(_kind, "0"), (0.0, 6.0), "secured", words=_words)


@FAMILY.kind((0.5, 8.0), "secured")
def lock_out(world: "World", _: Chance) -> End:
    """Revoke all hosts at once, and take it back by the store of before: nobody needs another secret."""
    keys = _keys(world)
    before = keys.folder / "credentials-before.json"

    def begin() -> End:
        before.write_bytes((keys.stores[0] / "credentials.json").read_bytes())
        return _tried(lambda: keys.revoke("host", "--all"), end)

    def end() -> None:
        _insist(world, "all hosts are let in again", lambda: keys.restore(before))

    return within(keys.changing, begin)


@FAMILY.kind((0.5, 8.0), "secured")
def damage_credentials(world: "World", chance: Chance) -> End:
    """Damage a broker's credential store and have it read again: it goes on by what it knows, and starts by no such store."""
    keys, broker = _keys(world), chance.choice(world.brokers)
    return within(keys.changing, lambda: _damaged(world, broker, chance))


def _damaged(world: "World", broker: "Broker", chance: Chance) -> End:
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
            _start_refused(broker.program)

    return _tried(begin, end)


def _put_back(stored: Path, whole: bytes) -> None:
    with stored.open("wb") as file:
        file.write(whole)
        file.flush()
        os.fsync(file.fileno())  # a fault of the disk may come next


def _start_refused(program: Program) -> None:
    """Start a program again that finds the damage just now."""
    deadline = time.monotonic() + _REFUSES_WITHIN
    while not program.refused and time.monotonic() < deadline:
        time.sleep(0.1)
    program.go_on()


def _cut(whole: bytes, chance: Chance) -> bytes:
    return whole[: chance.randrange(1, len(whole) - 1)]


def _flipped(whole: bytes, chance: Chance) -> bytes:
    place = chance.randrange(len(whole))
    return whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :]


def _newer(whole: bytes, _: Chance) -> bytes:
    return whole.replace(b'"version": 1', b'"version": 99', 1)


DAMAGES: tuple[Damage, ...] = (lambda _, __: b"", _cut, _flipped, _newer)


@FAMILY.kind((0.0, 0.0), "secured")
def renew_certificate(world: "World", chance: Chance) -> None:
    """Sign a broker's certificates anew, as it does by itself a month before they end."""
    keys, broker = _keys(world), chance.choice(world.brokers)
    key = keys.stores[0] / "tls" / "authority.key"
    words = ("tls", "renew", "--store-dir", broker.store, "--authority-key", key)
    for _ in range(chance.randint(1, 3)):
        _now(lambda: run_command("logbroker", *words))


@FAMILY.kind((0.0, 0.0), "secured")
def credentials_storm(world: "World", chance: Chance) -> None:
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


@FAMILY.kind((4.0, 20.0), "secured")
def crowd(world: "World", chance: Chance) -> End:
    """Take all connections that hosts may have, and have a shipper connect again: it waits for room."""
    keys, (name, program) = _keys(world), _whom(world, "host", chance)
    others = _Crowd(world.urls, Access(nkey=keys.file("host", name), tls_ca=keys.authority))
    with program.held():  # its place is to be taken, too
        program.process.kill()
        others.come()
    return others.leave


class _Crowd:
    """Connections that do nothing, in a thread of their own."""

    def __init__(self, urls: list[str], access: Access) -> None:
        self._urls, self._access = urls, access
        self._loop = asyncio.new_event_loop()
        self._connections: list[Connection] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="crowd")

    def come(self) -> None:
        """Come in until nobody more is let in."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._come(), self._loop).result(_SECONDS)

    def leave(self) -> None:
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
