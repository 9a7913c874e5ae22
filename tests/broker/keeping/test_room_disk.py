"""The stream's limit and the disk below it: the decision, and what a real server then takes."""

from typing import Any

import pytest

from broker.client.connection import Connection, Rejected
from broker.keeping.room import RoomKeeper
from broker.keeping.room_disk import Disk, Limit, follow, limited, noted, wished
from broker.keeping.room_guard import DiskGuard
from broker.wire.streams import STREAM
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


def test_another_keeper_gives_the_limit_back_when_the_first_has_died(dropping: Stream) -> None:
    dropping.publish("logs.p0.web01")

    async def limits(connection: Connection) -> list[int]:
        found = []
        for disk in (SHORT, BETWEEN, WELL):
            info = await connection.api(f"STREAM.INFO.{STREAM}")
            found.append(info["config"]["max_bytes"])
            await DiskGuard(connection, lambda disk=disk: disk).attend(info)
        return [*found, (await connection.api(f"STREAM.INFO.{STREAM}"))["config"]["max_bytes"]]

    before, held_down, still, after = dropping.ask(limits)
    assert held_down < before == after
    assert still <= held_down


def test_who_keeps_nothing_free_gives_back_what_another_held_down(dropping: Stream) -> None:
    dropping.publish("logs.p0.web01")

    async def limits(connection: Connection) -> list[int]:
        found = []
        for disk in (SHORT, None, None):
            info = await connection.api(f"STREAM.INFO.{STREAM}")
            found.append(info["config"]["max_bytes"])
            await DiskGuard(connection, lambda disk=disk: disk).attend(info)
        return found

    before, held_down, after = dropping.ask(limits)
    assert held_down < before == after


def test_what_was_changed_since_the_look_stays(dropping: Stream) -> None:
    dropping.publish("logs.p0.web01")

    async def change(connection: Connection) -> dict[str, Any]:
        info = await connection.api(f"STREAM.INFO.{STREAM}")
        other = {**info["config"], "max_age": 7 * 86_400 * 10**9, "max_bytes": 2_000_000}
        await connection.api(f"STREAM.UPDATE.{STREAM}", other)
        await DiskGuard(connection, lambda: SHORT).attend(info)
        there = await connection.api(f"STREAM.INFO.{STREAM}")
        aged = {**there["config"], "max_age": 3_600 * 10**9}
        await connection.api(f"STREAM.UPDATE.{STREAM}", aged)
        await DiskGuard(connection, lambda: SHORT).attend(there)
        last = await connection.api(f"STREAM.INFO.{STREAM}")
        return {"first": there["config"], "last": last["config"]}

    found = dropping.ask(change)

    assert found["first"]["max_bytes"] == 2_000_000  # looked at again before it is held down
    assert found["last"]["max_age"] == 3_600 * 10**9
    assert found["last"]["max_bytes"] < 2_000_000


def test_a_note_that_does_not_fit_tells_nothing() -> None:
    held = limited({"max_bytes": 1000, "metadata": {"owner": "ops"}}, Limit(500, 1000))

    assert noted(held) == Limit(500, 1000)
    assert noted({**held, "max_bytes": 700}) == Limit(700)
    assert noted({"max_bytes": 700, "metadata": {"logship.held_down": "700 much"}}) == Limit(700)
    assert limited(held, Limit(1000)) == {"max_bytes": 1000, "metadata": {"owner": "ops"}}


@pytest.mark.parametrize(
    ("config", "asked"),
    [
        ({"max_bytes": -1}, -1),
        ({"max_bytes": 500}, 500),
        ({"max_bytes": 500, "metadata": {"logship.computed_max_bytes": "500"}}, None),
        ({"max_bytes": 500, "metadata": {"logship.computed_max_bytes": "700"}}, 500),
        ({"max_bytes": 300, "metadata": {"logship.held_down": "300 500"}}, 500),
        (
            {
                "max_bytes": 300,
                "metadata": {
                    "logship.held_down": "300 500",
                    "logship.computed_max_bytes": "500",
                },
            },
            None,
        ),
    ],
)
def test_what_was_asked_for_is_no_limit_that_is_held_down_or_was_computed(
    config: dict[str, Any], asked: int | None
) -> None:
    assert wished(config).get("max_bytes") == asked
