"""The stream's limit and the disk below it: the decision, and what a real server then takes."""

import pytest

from broker.connecting.connection import Connection, Rejected
from broker.keeping.room import RoomKeeper
from broker.keeping.room_disk import Disk, Limit, follow
from broker.keeping.room_guard import DiskGuard
from broker.topology import STREAM
from tests.broker.keeping.conftest import Stream

SHORT, BETWEEN, WELL = Disk(49, 100), Disk(60, 100), Disk(100, 100)


@pytest.mark.parametrize(
    ("limit", "disk", "wanted"),
    [
        pytest.param(Limit(1000), WELL, Limit(1000), id="well"),
        pytest.param(Limit(1000), BETWEEN, Limit(1000), id="not yet short"),
        pytest.param(Limit(1000), SHORT, Limit(500, 1000), id="short"),
        pytest.param(Limit(-1), SHORT, Limit(500, -1), id="short, and no limit"),
        pytest.param(Limit(400), SHORT, Limit(400, 400), id="short, and over its limit"),
        pytest.param(Limit(600, 1000), SHORT, Limit(500, 1000), id="still short, and less held"),
        pytest.param(Limit(500, 1000), BETWEEN, Limit(500, 1000), id="not yet well"),
        pytest.param(Limit(500, 1000), WELL, Limit(1000), id="well again"),
        pytest.param(Limit(500, -1), WELL, Limit(-1), id="well again, and no limit"),
    ],
)
def test_the_limit_follows_the_disk(limit: Limit, disk: Disk, wanted: Limit) -> None:
    assert follow(limit, 500, disk) == wanted


def test_a_stream_takes_nothing_while_the_disk_is_short_and_goes_on_after(
    dropping: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    there = [dropping.publish("logs.p0.web01") for _ in range(10)]
    dropping.commit(0, there[5])
    disks = [SHORT, SHORT, WELL]
    taken = []

    async def look(connection: Connection) -> RoomKeeper:
        keeper = RoomKeeper(
            *(connection, dropping.folder, "one", lambda: dropping.policy, lambda: 1),
            lambda: disks.pop(0),
        )
        while disks:
            await keeper.look()
            try:
                await connection.ask("logs.p0.web01", b"x" * 50_000)
                taken.append(True)
            except Rejected:
                taken.append(False)
        return keeper

    report = dropping.ask(look).report

    assert taken == [False, False, True]
    assert dropping.info()["config"]["max_bytes"] == 1_000_000
    assert report.dropped_messages == 0
    assert report.purged_messages == 2
    assert caplog.text.count("B left, and") == 1


def test_whoever_leads_the_stream_no_more_gives_its_limit_back(dropping: Stream) -> None:
    dropping.publish("logs.p0.web01")

    async def limits(connection: Connection) -> list[int]:
        found = []
        guard = DiskGuard(connection, lambda: SHORT)
        for step in (guard.attend, guard.release, guard.release):
            info = await connection.api(f"STREAM.INFO.{STREAM}")
            found.append(info["config"]["max_bytes"])
            await step(info)
        return found

    before, held_down, after = dropping.ask(limits)
    assert held_down < before == after
