"""The keeper of room, cut off from its broker or killed after any of its steps, and the one that comes after it."""

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from broker.client.connection import Connection, ConnectionLost
from broker.keeping.room import RoomKeeper
from broker.keeping.room_drops import NAME
from tests.broker.keeping.conftest import Stream

ONE, OTHER, THIRD = "logs.p0.web01", "logs.p0.web02", "logs.p1.db"


class Failing(Connection):
    """A connection that breaks after so many removals, and for good."""

    removals = 0

    async def api(
        self, name: str, body: Mapping[str, Any] | None = None, patience: float = 5.0
    ) -> dict[str, Any]:
        if name.startswith(("STREAM.PURGE", "STREAM.MSG.DELETE")):
            self.removals -= 1
        if self.removals < 0:
            raise ConnectionLost("cut")
        return await super().api(name, body, patience)


def look_and_fail(stream: Stream, removals: int) -> None:
    async def look(connection: Connection) -> None:
        failing = Failing([stream.url], "failing")
        failing.removals = removals
        keeper = RoomKeeper(failing, stream.folder, "one", lambda: stream.policy, time.time_ns)
        try:
            await keeper.look()
        finally:
            await failing.close()

    stream.ask(look)


@pytest.mark.parametrize("removals", [0, 1, 4])
def test_a_purge_that_was_cut_off_is_finished_by_the_next_keeper(
    stream: Stream, removals: int
) -> None:
    there = stream.fill(ONE, OTHER, THIRD)
    stream.commit(0, there[-1] + 1)

    look_and_fail(stream, removals)
    keeper = stream.look()

    assert stream.sequences(THIRD) == there[2::3]
    assert not keeper.report.waits
    assert not (stream.folder / NAME).exists()


@pytest.mark.parametrize("removals", [0, 1, 4])
def test_whatever_a_drop_was_cut_off_at_what_is_gone_is_named_and_what_is_there_is_not(
    dropping: Stream, removals: int
) -> None:
    claims = [dropping.publish(subject, "first") for subject in (ONE, OTHER)]
    there = claims + dropping.fill(ONE, OTHER, THIRD)

    look_and_fail(dropping, removals)
    dropping.look()

    left = set(dropping.sequences())
    named: set[int] = set()
    for line in (dropping.folder / NAME).read_text().splitlines():
        entry = json.loads(line)
        if entry["state"] == "announced":
            named |= within(there, entry)
        for rest in entry.get("left", ()):
            named -= within(there, rest)
    assert named == set(there) - left
    assert '"announced"' not in (dropping.folder / NAME).read_text().splitlines()[-1]


def within(there: list[int], told: dict[str, Any]) -> set[int]:
    """Return the messages of a range: there were two first ones, then one of each subject in turn."""
    subject = told["subject"]
    firsts = {ONE: there[0:1], OTHER: there[1:2], THIRD: []}[subject]
    sequences = {*firsts, *there[2 + (ONE, OTHER, THIRD).index(subject) :: 3]}
    return sequences & set(range(told["first"], told["until"]))
