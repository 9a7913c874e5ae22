"""Partitions that share a slot: each is received at once, and stops alone."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nats_logship.app.locks import exclusive_lock
from tests.receiver.threaded import HOSTS, Receiver

pytestmark = pytest.mark.nats


async def write_to(receiver: Receiver, number: int, text: bytes) -> None:
    await asyncio.to_thread(receiver.partitions[number].lines, HOSTS[number], text)


async def test_a_partition_that_wakes_joins_the_task_that_runs_for_another(
    logs_url: str, tmp_path: Path
) -> None:
    async with Receiver(logs_url, tmp_path) as receiver:
        await receiver.send(b"1\n")
        await receiver.until(receiver.has(0, b"1\n"))
        await receiver.until(receiver.has(1, b"1\n"))
        clock = asyncio.get_running_loop().time
        for number in (0, 1):
            began = clock()
            await write_to(receiver, number, b"2\n")
            await receiver.until(receiver.has(number, b"1\n2\n"))
            assert clock() - began < 20, "a task of the slot lasts for a minute"


async def test_a_partition_that_joins_too_late_is_received_all_the_same(
    logs_url: str, tmp_path: Path
) -> None:
    async with Receiver(logs_url, tmp_path) as receiver:
        guard, pulls = receiver.connection.guard, list[str]()

        async def end_slowly(call: Any, patience: float, subject: str = "") -> Any:
            pulls.append(subject)
            try:
                return await guard(call, patience, subject)
            except asyncio.CancelledError:
                await asyncio.sleep(1.0)  # sessions join a task for 0.05 s
                raise

        receiver.connection.guard = end_slowly  # type: ignore[method-assign]
        await receiver.until(lambda: all(f"NEXT.LOGS.wake-p{n}" in str(pulls) for n in (0, 1)))
        await write_to(receiver, 0, b"1\n")
        await receiver.until(receiver.has(0, b"1\n"))
        await write_to(receiver, 1, b"2\n")
        await receiver.until(receiver.has(1, b"2\n"))


async def test_a_blocked_partition_blocks_no_other_of_its_slot(
    logs_url: str, tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    async with Receiver(logs_url, tmp_path) as receiver:
        with exclusive_lock(tmp_path / "state" / "p0.lock", 20.0):
            await receiver.send(b"1\n")
            await receiver.until(receiver.has(1, b"1\n"))
            await receiver.until(lambda: receiver.meter.expect(0).blocked is not None)
            await write_to(receiver, 1, b"2\n")
            await receiver.until(receiver.has(1, b"1\n2\n"))
        await receiver.until(receiver.has(0, b"1\n"))


async def test_running_partitions_are_dealt_again_when_slots_come_and_go(
    logs_url: str, tmp_path: Path
) -> None:
    async with Receiver(logs_url, tmp_path, slots=2) as receiver:
        expected = b""
        for number, slots, dealt in ((1, 2, {(0,), (1,)}), (2, 1, {(0, 1)}), (3, 2, {(0,), (1,)})):
            receiver.dealt.clear()
            receiver.driver.use_slots(slots)
            await receiver.send(text := b"%d\n" % number)
            expected += text
            for partition in (0, 1):
                await receiver.until(receiver.has(partition, expected))
            await receiver.until(lambda dealt=dealt: dealt <= set(receiver.dealt))
