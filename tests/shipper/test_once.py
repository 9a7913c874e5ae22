"""What a run with `--once` makes of files that it did not read. Real files."""

from pathlib import Path

import pytest

from broker.app.exits import OperatorError
from shipper.once import Goals
from tests.shipper.host import Host


async def test_a_file_that_was_moved_whenever_it_was_looked_for_is_named(tmp_path: Path) -> None:
    host, goals = Host(tmp_path), Goals()
    host.write("app.log", b"line\n")
    await host.look()
    goals.aim(host.follower.states())
    goals.scans_left = 0

    with pytest.raises(OperatorError, match=r"app.log: was moved again and again"):
        goals.conclude(host.follower)

    await host.follower.close()


@pytest.mark.parametrize("rest", [b"", b"unfinished"])
async def test_what_is_read_to_its_last_line_was_not_missed(tmp_path: Path, rest: bytes) -> None:
    host, goals = Host(tmp_path), Goals()
    host.write("app.log", b"line\n" + rest)
    await host.look()
    goals.aim(host.follower.states())
    await host.gather()
    goals.scans_left = 0

    goals.conclude(host.follower)
    await host.follower.close()


async def test_a_file_keeps_the_goal_that_it_had_first(tmp_path: Path) -> None:
    host, goals = Host(tmp_path), Goals()
    host.write("app.log", b"line\n")
    await host.look()
    goals.aim(host.follower.states())
    await host.gather()
    host.write("app.log", b"later\n")
    await host.look()

    goals.aim(host.follower.states())

    assert goals.are_met(host.follower.states())
    await host.follower.close()
