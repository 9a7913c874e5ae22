"""Credentials revoked and rotated, stores damaged, certificates renewed under traffic."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial

from tests.chaos.fault import MOMENT, CannotStrike, Chance, add, fault
from tests.chaos.program import Program
from tests.chaos.secured import Keys
from tests.chaos.world import Broker, World
from tests.support.commands import CommandFailed, retried, run_command

_REFUSES_WITHIN = 15.0  # seconds until a broker that finds the damage has ended


def _choose(world: World, kind: str, chance: Chance) -> tuple[str, Program]:
    if kind == "host":
        host = chance.choice(world.hosts)
        return host.name, host.shipper
    program = chance.choice([*world.receivers, *world.tables])
    return program.name.removeprefix("receiver-"), program


def _cut_off(
    world: World, chance: Chance, kind: str, change: Callable[[Keys, str, str], None]
) -> Iterator[None]:
    """Take a credential away from who is at work, or change its secret, and give it another one."""
    assert world.keys
    keys, (name, program) = world.keys, _choose(world, kind, chance)

    def mend() -> None:
        retried(lambda: keys.add(kind, name))
        _take_over(world, program)

    return _changed(lambda: change(keys, kind, name), mend)


for _kind in ("host", "receiver"):
    for _what, _change in {"revoke": Keys.revoke, "rotate": Keys.add}.items():
        cutting_off = partial(_cut_off, kind=_kind, change=_change)
        add(f"{_what}-{_kind}", cutting_off, (0.5, 8.0), "secured")


@fault((0.5, 8.0), "secured")
def damage_credentials(world: World, chance: Chance) -> Iterator[None]:
    """Damage a broker's credential store: it goes on without it, and does not start."""
    assert world.keys
    with world.keys.changing:
        yield from _damaged(chance.choice(world.brokers), world, chance)


def _damaged(broker: Broker, world: World, chance: Chance) -> Iterator[None]:
    stored = broker.store / "credentials.json"
    whole, starts = stored.read_bytes(), broker.program.process.starts

    def damage() -> None:
        place = chance.randrange(1, len(whole) - 1)
        damages = (b"", whole[:place], whole[:place] + b"\x80" + whole[place + 1 :])
        stored.write_bytes(chance.choice(damages))
        broker.program.process.hang_up()

    def put_back() -> None:
        with stored.open("wb") as file:
            file.write(whole)
            file.flush()
            os.fsync(file.fileno())  # a fault of the disk may come next

    def mend() -> None:
        retried(put_back)
        broker.program.process.hang_up()
        if broker.program.process.starts != starts:
            _start_refused(broker.program)

    return _changed(damage, mend)


def _start_refused(program: Program) -> None:
    deadline = time.monotonic() + _REFUSES_WITHIN
    while not program.refused and time.monotonic() < deadline:
        time.sleep(0.1)
    program.go_on()


@fault(MOMENT, "secured")
def renew_certificate(world: World, chance: Chance) -> Iterator[None]:
    """Sign a broker's certificates again, as it does by itself a month before they end."""
    broker = chance.choice(world.brokers)
    command = ("logbroker", "tls", "renew", "--store-dir", broker.store)
    renew = lambda: run_command(*command)  # noqa: E731
    return _changed(renew, lambda: None)


def _changed(change: Callable[[], object], mend: Callable[[], None]) -> Iterator[None]:
    """Make a change, and mend it later, or at once if it was made only in part."""
    try:
        change()
    except CommandFailed as failed:
        mend()
        raise CannotStrike(str(failed)[-300:]) from None
    except OSError:
        mend()
        raise
    yield
    mend()


def _take_over(world: World, program: Program) -> None:
    """Have a program and its rivals use the new file; with a key's path they do by themselves."""
    for one in list(world.supervisor.programs):
        is_meant = one is program or one.name.startswith(f"{program.name}-rival-")
        if is_meant and "--nkey" not in one.process.arguments:
            one.process.terminate()
