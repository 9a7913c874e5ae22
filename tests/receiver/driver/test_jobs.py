"""The slots for stays: one partition each, in turn; who has one leaves when others wait."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from receiver.consume.assignment import Assignment, Done, Ending, Report
from receiver.driver.jobs import Jobs


class Spark:
    """Runs stays that last until their gate is opened; remembers whose turn it was."""

    def __init__(self) -> None:
        self.turns: list[int] = []
        self.gates: dict[int, threading.Event] = {}
        self.error: BaseException | None = None

    def run(self, assignment: Assignment) -> Report:
        number = assignment.partition
        self.turns.append(number)
        if gate := self.gates.get(number):
            gate.wait(60)
        if self.error:
            raise self.error
        return report(number)


def report(number: int) -> Report:
    return Report(Done(number, 1, 1), 0, Ending.SILENCE)


@pytest.fixture
def spark() -> Iterator[Spark]:
    made = Spark()
    yield made
    for gate in made.gates.values():
        gate.set()


def submit(jobs: Jobs, number: int, leave: asyncio.Event | None = None) -> "asyncio.Task[Report]":
    return asyncio.create_task(jobs.submit(Assignment(number, 1, 1, 1), leave or asyncio.Event()))


async def settle(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - a thread's doing is waited for
            await asyncio.sleep(0.01)


async def test_every_partition_has_its_turn_with_many_more_of_them_than_slots(spark: Spark) -> None:
    jobs = Jobs(spark.run, 2)

    async def follow(number: int) -> None:
        for _ in range(20):
            assert await submit(jobs, number) == report(number)

    async with asyncio.timeout(20):
        await asyncio.gather(*(follow(number) for number in range(50)))

    rounds = [spark.turns[begin : begin + 50] for begin in range(0, 1000, 50)]
    assert all(len(set(turns)) > 40 for turns in rounds), "nobody comes twice before the others"


async def test_who_was_asked_and_does_not_leave_is_passed_over(spark: Spark) -> None:
    spark.gates = {0: threading.Event(), 1: threading.Event()}
    jobs, leaves = Jobs(spark.run, 2), [asyncio.Event() for _ in range(3)]
    hangs, stays = submit(jobs, 0, leaves[0]), submit(jobs, 1, leaves[1])
    await settle(lambda: len(spark.turns) == 2)

    waits = submit(jobs, 2, leaves[2])
    await settle(leaves[1].is_set)

    spark.gates[1].set()
    assert await asyncio.wait_for(waits, 10) == report(2)
    assert not hangs.done()
    spark.gates[0].set()
    await asyncio.wait_for(asyncio.gather(hangs, stays), 10)
