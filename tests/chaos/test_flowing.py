"""Lines flow when the last ones have come: what was destroyed twice does not stand for what is still on its way."""

from pathlib import Path

import pytest

from tests.chaos.flowing import Awaited
from tests.chaos.losses import Destroyed
from tests.chaos.order import Shape
from tests.chaos.program import Supervisor
from tests.chaos.world import Host, World
from tests.support.processes import Processes


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return one whose host has written, and whose receiver has received nothing yet."""
    world = World(tmp_path, Shape(plain=True), Processes(tmp_path / "logs"), Supervisor())
    world.output.mkdir(parents=True)
    logs = tmp_path / "hosts" / "web01" / "logs"
    writing = world.writing("web01", 0, logs)
    for _ in range(20):
        writing.tick(0.1)
    writing.finish()
    world.hosts.append(Host("web01", "h1", logs, writing))
    return world


def _destroy(world: World, lines: bytes, times: int = 1) -> None:
    world.destroyed += [Destroyed("web01", f"f{number}", 0, lines) for number in range(times)]


def test_where_nothing_is_destroyed_every_byte_is_awaited(world: World) -> None:
    awaited, live = Awaited(world), world.output / "web01.log"
    whole = b"".join(world.hosts[0].sources())

    live.write_bytes(whole[:-1])
    assert not awaited.has_come()
    live.write_bytes(whole)
    assert awaited.has_come()


def test_what_was_destroyed_twice_does_not_stand_for_the_last_lines(world: World) -> None:
    lines = world.hosts[0].sources()
    halves = [log[: log.index(b"\n", len(log) // 2) + 1] for log in lines]
    for half in halves:
        _destroy(world, half, times=3)
    awaited, live = Awaited(world), world.output / "web01.log"
    assert not awaited.has_come()

    rest = b"".join(log[len(half) :] for log, half in zip(lines, halves, strict=True))
    live.write_bytes(rest[:-200])
    assert not awaited.has_come()
    live.write_bytes(rest)
    assert awaited.has_come()


def test_where_all_last_lines_were_destroyed_lines_flow_when_later_ones_have_come(
    world: World,
) -> None:
    before = world.hosts[0].sources()
    for log in before:
        _destroy(world, log)
    awaited = Awaited(world)
    assert not awaited.has_come()

    for file in world.hosts[0].writing.logs:
        file.begin()
        file.append(b"%b 00999999 written when all was over\n" % file.path.name.encode())
    assert not awaited.has_come()
    after = zip(world.hosts[0].sources(), before, strict=True)
    (world.output / "web01.log").write_bytes(b"".join(log[len(old) :] for log, old in after))

    assert awaited.has_come()


def test_a_last_line_that_was_destroyed_is_not_awaited_where_another_has_come(
    world: World,
) -> None:
    first, *others = world.hosts[0].sources()
    _destroy(world, first)
    (world.output / "web01.log").write_bytes(b"".join(others))

    assert Awaited(world).has_come()
