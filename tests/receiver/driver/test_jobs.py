"""The slots for stays: one partition each, in turn; who has one leaves when others wait."""

import asyncio
import gc
import logging
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


async def test_a_stay_that_lasts_holds_up_no_other(spark: Spark) -> None:
    spark.gates[0] = threading.Event()
    jobs = Jobs(spark.run, 2)
    slow = submit(jobs, 0)
    await settle(lambda: spark.turns == [0])

    others = await asyncio.wait_for(asyncio.gather(*(submit(jobs, n) for n in range(1, 20))), 20)

    assert others == [report(n) for n in range(1, 20)]
    assert not slow.done()
    spark.gates[0].set()
    await slow


async def test_who_stays_is_asked_to_leave_only_when_somebody_waits_the_first_first(
    spark: Spark,
) -> None:
    spark.gates = {0: threading.Event(), 1: threading.Event()}
    jobs, leaves = Jobs(spark.run, 2), [asyncio.Event() for _ in range(4)]
    first, second = submit(jobs, 0, leaves[0]), submit(jobs, 1, leaves[1])
    await settle(lambda: len(spark.turns) == 2)
    assert [leave.is_set() for leave in leaves] == [False] * 4

    third = submit(jobs, 2, leaves[2])
    await asyncio.sleep(0.05)
    assert [leave.is_set() for leave in leaves] == [True, False, False, False]
    fourth = submit(jobs, 3, leaves[3])
    await asyncio.sleep(0.05)
    assert [leave.is_set() for leave in leaves] == [True, True, False, False]

    for gate in spark.gates.values():
        gate.set()
    await asyncio.wait_for(asyncio.gather(first, second, third, fourth), 10)


async def test_every_partition_has_its_turn_with_many_more_of_them_than_slots(spark: Spark) -> None:
    jobs = Jobs(spark.run, 2)

    async def follow(number: int) -> None:
        for _ in range(20):
            assert await submit(jobs, number) == report(number)

    async with asyncio.timeout(20):
        await asyncio.gather(*(follow(number) for number in range(50)))

    rounds = [spark.turns[begin : begin + 50] for begin in range(0, 1000, 50)]
    assert all(len(set(turns)) > 40 for turns in rounds), "nobody comes twice before the others"


async def test_an_error_reaches_who_waits_for_it_and_makes_no_noise(
    spark: Spark, caplog: pytest.LogCaptureFixture
) -> None:
    spark.error = RuntimeError("Spark is gone")
    jobs = Jobs(spark.run, 1)

    with caplog.at_level(logging.ERROR, "asyncio"):
        outcomes = await asyncio.gather(
            *(submit(jobs, n) for n in range(3)), return_exceptions=True
        )
        gc.collect()
        await asyncio.sleep(0)

    assert [str(outcome) for outcome in outcomes] == ["Spark is gone"] * 3
    assert caplog.records == []


async def test_whoever_is_cancelled_while_waiting_is_not_run(spark: Spark) -> None:
    spark.gates[0] = threading.Event()
    jobs = Jobs(spark.run, 1)
    first = submit(jobs, 0)
    await settle(lambda: spark.turns == [0])
    gone, stays = submit(jobs, 1), submit(jobs, 2)
    await asyncio.sleep(0.05)

    gone.cancel()
    await asyncio.wait({gone})
    spark.gates[0].set()

    assert await asyncio.wait_for(stays, 10) == report(2)
    await first
    assert spark.turns == [0, 2]


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
