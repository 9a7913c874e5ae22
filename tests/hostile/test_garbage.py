"""Garbage in an entry that programs share: only what it is about waits; the advice mends it."""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from nats_logship.app.exits import ConfigurationError, FencedError
from nats_logship.client.connection import Connection
from nats_logship.wire.offset import Offset
from nats_logship.wire.streams import StreamLayout
from receiver.cli import logreceiver
from receiver.driver.partitions import require_sound
from tests.receiver.threaded import HOSTS, Receiver
from tests.support.hostile import GARBAGE
from tests.support.processes import wait_until
from tests.support.suite import Suite

pytestmark = pytest.mark.nats

Spoil = Callable[[Offset], bytes]
"""Returns what is written instead of an entry; nothing deletes it."""
ENTRIES: dict[str, Spoil] = {
    "not JSON": lambda _: GARBAGE["no JSON"],
    "another type": lambda _: GARBAGE["a number below zero"],
    "another version": lambda _: b'{"version": 2, "next": 1}',
    "behind the stream": lambda good: replace(good, next=10**12).encode(),
    "behind another batch": lambda good: replace(good, next=1, commit="").encode(),
    "deleted": lambda _: b"",
}


async def write(connection: Connection, key: str, value: bytes) -> None:
    """Write an entry, whatever it was; delete it for nothing."""
    headers = {} if value else {"KV-Operation": "DEL"}
    await connection.ask(f"$KV.{key.replace('/', '.')}", value, headers)


def follow_advice(advice: str, url: str) -> None:
    arguments = re.findall(r"`logreceiver ([^`]*)`", advice)[-1].split()
    done = CliRunner().invoke(logreceiver, [*arguments, "--yes", "--server", url])
    assert done.exit_code == 0, (arguments, done.output, done.exception)


@pytest.mark.parametrize(
    ("spoil", "is_running"),
    [
        pytest.param(spoil, is_running, id=f"{name}, {'in mid-run' if is_running else 'at first'}")
        for name, spoil in ENTRIES.items()
        for is_running in (True, False)
        if not (is_running and name == "behind another batch")  # moved back under its hands
    ],
)
async def test_garbage_in_an_offset_blocks_its_partition_until_mended_as_advised(
    logs_url: str, tmp_path: Path, spoil: Spoil, *, is_running: bool
) -> None:
    first = Receiver(logs_url, tmp_path)
    async with first:
        await first.send(b"1\n")
        await first.until(lambda: first.has(0, b"1\n")() and first.has(1, b"1\n")())
        waits = lambda: waits_for_more(first)  # noqa: E731
        await asyncio.to_thread(wait_until, "the line is committed, and more awaited", waits, 30)
        if is_running:
            await mend(first, logs_url, await spoil_offset(first, spoil))
    if not is_running:
        second = Receiver(logs_url, tmp_path)
        value = await spoil_offset(second, spoil)  # before it claims the partition
        async with second:
            await mend(second, logs_url, value)


def waits_for_more(receiver: Receiver) -> bool:
    one = receiver.partitions[0]
    consumer = one.ask(lambda c: c.api("CONSUMER.INFO.LOGS.receiver-p0"))
    return bool(one.offset().commit and consumer["num_waiting"])


async def spoil_offset(receiver: Receiver, spoil: Spoil) -> bytes:
    good = await asyncio.to_thread(receiver.partitions[0].offset)
    await write(receiver.connection, "LOGS_OFFSETS/p0", value := spoil(good))
    return value


async def mend(receiver: Receiver, url: str, value: bytes) -> None:
    await receiver.send(b"2\n")

    await receiver.until(receiver.has(1, b"1\n2\n"))
    await receiver.until(lambda: "logreceiver offsets" in receiver.advice())
    assert receiver.meter.is_ready

    await asyncio.to_thread(follow_advice, receiver.advice(), url)
    await receiver.until(lambda: not receiver.advice())
    if b"commit" in value:  # lines of no known file come again if the entry names no end of them
        await receiver.until(lambda: receiver.partitions[0].read(HOSTS[0]).endswith(b"2\n"))
    else:
        await receiver.until(receiver.has(0, b"1\n2\n"))


async def test_garbage_in_the_offset_of_a_new_partition_is_mended_as_advised(
    logs_url: str, tmp_path: Path
) -> None:
    async with Receiver(logs_url, tmp_path) as receiver:
        pass
    (tmp_path / "state" / "p0.db").unlink(missing_ok=True)
    async with Receiver(logs_url, tmp_path) as receiver:
        await write(receiver.connection, "LOGS_OFFSETS/p0", b"{")
        await receiver.send(b"1\n")
        await receiver.until(receiver.has(1, b"1\n"))
        await receiver.until(lambda: "logreceiver offsets" in receiver.advice())

        await asyncio.to_thread(follow_advice, receiver.advice(), logs_url)
        await receiver.until(receiver.has(0, b"1\n"))


async def test_a_mended_partition_that_another_receiver_took_is_not_taken_back(
    logs_url: str, tmp_path: Path
) -> None:
    async with Receiver(logs_url, tmp_path) as receiver:
        await receiver.send(b"1\n")
        await receiver.until(receiver.has(0, b"1\n"))
        good = await asyncio.to_thread(receiver.partitions[0].offset)
        await write(receiver.connection, "LOGS_OFFSETS/p0", b"{")
        await receiver.send(b"2\n")
        await receiver.until(lambda: bool(receiver.advice()))

        async with Receiver(logs_url, tmp_path / "other") as other:
            await other.until(lambda: bool(other.advice()))
            presence = (await asyncio.to_thread(other.partitions[1].offset)).presence
            taken = replace(good, epoch=good.epoch + 1, owner="other:1", presence=presence)
            await write(receiver.connection, "LOGS_OFFSETS/p0", taken.encode())
            await receiver.until(lambda: bool(receiver.meter.expect(0).successor))


async def test_with_once_the_other_partitions_are_received_before_it_is_reported(
    logs_url: str, tmp_path: Path
) -> None:
    receiver = Receiver(logs_url, tmp_path, once=True)
    await write(receiver.connection, "LOGS_OFFSETS/p0", b"{")
    await receiver.send(b"1\n")

    async with receiver:
        with pytest.raises(ConfigurationError, match="partition 0: key p0 of bucket LOGS_OFFSETS"):
            await asyncio.wait_for(asyncio.shield(receiver.running), 40)

    assert receiver.has(1, b"1\n")()


async def test_a_receiver_of_nothing_but_garbage_does_not_start(
    logs_url: str, tmp_path: Path
) -> None:
    receiver = Receiver(logs_url, tmp_path)
    numbers = range(2)
    for number in numbers:
        with suppress(FencedError):
            await require_sound(receiver.settings, receiver.connection, StreamLayout(2), numbers)
        await write(receiver.connection, f"LOGS_OFFSETS/p{number}", b"{")
    with pytest.raises(ConfigurationError, match=r"offsets set --partition 0,1 --to earliest"):
        await require_sound(receiver.settings, receiver.connection, StreamLayout(2), numbers)
    await receiver.connection.close()


@pytest.mark.long
@pytest.mark.spark
def test_garbage_in_what_all_read_ends_no_program_and_is_mended_as_advised(
    suite: Suite, tmp_path: Path
) -> None:
    suite.start_broker()
    log = tmp_path / "app.log"
    log.write_bytes(b"1\n")
    for key in ("partitions", "streams", "pause"):
        suite.ask(partial(write, key=f"LOGS_CONFIG/{key}", value=b"garbage"))

    shipper = suite.start_shipper("web01", [log])
    receiver = suite.start_receiver([0, 1])
    advice = "; run `logbroker apply`"
    wait = lambda: all(advice in one.read_log() for one in (shipper, receiver))  # noqa: E731
    wait_until("they wait", wait, 60)
    suite.administer("apply", "--yes")

    wait_until("the line is there", (suite.output / "web01.log").exists, 60, [shipper, receiver])
