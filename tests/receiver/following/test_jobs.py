"""The desk between partitions and Spark: groups what waits, holds nobody up, tells everybody of an error."""

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Sequence

import pytest

from receiver.assignment import Assignment
from receiver.following.jobs import Jobs
from receiver.outcome import Done, Outcome


class Spark:
    """Runs jobs when it is let; remembers which partitions came together."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.gates: dict[int, threading.Event] = {}
        self.error: BaseException | None = None

    def run(self, assignments: Sequence[Assignment]) -> list[Outcome]:
        numbers = [assignment.partition for assignment in assignments]
        self.groups.append(numbers)
        for number in numbers:
            if gate := self.gates.get(number):
                gate.wait(5)
        if self.error:
            raise self.error
        return [Done(number, 1, 1) for number in numbers]


def submit(jobs: Jobs, *partitions: int) -> list["asyncio.Task[Outcome]"]:
    return [asyncio.create_task(jobs.submit(Assignment(n, 1, 1, 1))) for n in partitions]


async def settle(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(3):
        while not holds():  # noqa: ASYNC110 - a thread's doing is waited for
            await asyncio.sleep(0.01)


async def test_what_gathers_while_a_slot_is_busy_goes_in_one_job() -> None:
    spark = Spark()
    spark.gates[0] = threading.Event()
    jobs = Jobs(spark.run, 1)

    first = submit(jobs, 0)
    await settle(lambda: spark.groups == [[0]])
    rest = submit(jobs, 1, 2, 3)
    await asyncio.sleep(0.05)
    spark.gates[0].set()
    outcomes = await asyncio.gather(*first, *rest)

    assert spark.groups == [[0], [1, 2, 3]]
    assert outcomes == [Done(n, 1, 1) for n in range(4)]


async def test_every_partition_is_served_with_many_more_of_them_than_slots() -> None:
    spark = Spark()
    jobs = Jobs(spark.run, 2)

    async def follow(partition: int) -> None:
        for _ in range(20):
            assert await jobs.submit(Assignment(partition, 1, 1, 1)) == Done(partition, 1, 1)

    async with asyncio.timeout(20):
        await asyncio.gather(*(follow(n) for n in range(50)))

    assert sorted(n for group in spark.groups for n in group) == sorted(list(range(50)) * 20)


async def test_an_outcome_does_not_wait_for_a_job_of_others() -> None:
    spark = Spark()
    spark.gates = {0: threading.Event(), 9: threading.Event()}
    jobs = Jobs(spark.run, 1)
    held = submit(jobs, 0)
    await settle(lambda: spark.groups == [[0]])
    quick = submit(jobs, 1, 2)
    await asyncio.sleep(0.05)
    spark.gates[0].set()
    await settle(lambda: len(spark.groups) == 2)
    slow = submit(jobs, 9)

    outcomes = await asyncio.wait_for(asyncio.gather(*held, *quick), 2)

    assert [outcome.partition for outcome in outcomes] == [0, 1, 2]
    assert not slow[0].done()
    spark.gates[9].set()
    await slow[0]


async def test_an_error_reaches_everybody_who_waits_and_makes_no_noise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spark = Spark()
    spark.error = RuntimeError("Spark is gone")
    jobs = Jobs(spark.run, 1)

    with caplog.at_level(logging.ERROR, "asyncio"):
        outcomes = await asyncio.gather(*submit(jobs, 0, 1, 2), return_exceptions=True)
        gc.collect()
        await asyncio.sleep(0)

    assert [str(outcome) for outcome in outcomes] == ["Spark is gone"] * 3
    assert caplog.records == []


async def test_whoever_is_cancelled_in_the_queue_does_not_take_the_others_along() -> None:
    spark = Spark()
    spark.gates[0] = threading.Event()
    jobs = Jobs(spark.run, 1)
    first = submit(jobs, 0)
    await settle(lambda: spark.groups == [[0]])
    gone, stays = submit(jobs, 1, 2)
    await asyncio.sleep(0.05)

    gone.cancel()
    await asyncio.wait({gone})
    spark.gates[0].set()

    assert await asyncio.wait_for(stays, 2) == Done(2, 1, 1)
    await asyncio.gather(*first)
    assert spark.groups[1] == [2]
