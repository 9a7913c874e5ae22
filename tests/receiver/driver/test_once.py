"""A receiver with --once where another one is at work: it ends, or takes over if told to."""

import asyncio
from pathlib import Path

import pytest

from nats_logship.app.exits import Exit, OperatorError
from nats_logship.wire.streams import StreamLayout
from receiver.driver.preflight import require_unused
from tests.receiver.threaded import Receiver

pytestmark = pytest.mark.nats


async def test_once_leaves_a_receiver_that_runs_alone_and_names_it(
    logs_url: str, tmp_path: Path
) -> None:
    async with Receiver(logs_url, tmp_path, name="central:7") as owner:
        await owner.send(b"1\n")
        await owner.until(lambda: owner.has(0, b"1\n")() and owner.has(1, b"1\n")())
        once = Receiver(logs_url, tmp_path / "once", once=True)
        words = r"partition 0 is received by central:7.*--take-over"
        with pytest.raises(OperatorError, match=words) as raised:
            await require_unused(once.settings, once.connection, StreamLayout(2), range(2))
        assert raised.value.code is Exit.FAILED
        async with once:
            with pytest.raises(OperatorError, match=r"received by central:7.*--take-over"):
                await asyncio.wait_for(asyncio.shield(once.running), 30)

        await owner.send(b"2\n")
        await owner.until(lambda: owner.has(0, b"1\n2\n")() and owner.has(1, b"1\n2\n")())


async def test_once_takes_over_where_it_is_told_to_and_the_other_one_says_so(
    logs_url: str, tmp_path: Path
) -> None:
    async with Receiver(logs_url, tmp_path, name="central:7") as owner:
        await owner.send(b"1\n")
        await owner.until(lambda: owner.has(0, b"1\n")() and owner.has(1, b"1\n")())
        once = Receiver(logs_url, tmp_path, once=True, take_over=True, name="once:8")
        await require_unused(once.settings, once.connection, StreamLayout(2), range(2))
        await once.send(b"2\n")
        async with once:
            await asyncio.wait_for(asyncio.shield(once.running), 30)
        with pytest.raises(OperatorError, match="once:8"):
            await asyncio.wait_for(asyncio.shield(owner.running), 40)

    assert owner.has(0, b"1\n2\n")()
    assert owner.has(1, b"1\n2\n")()


async def test_once_receives_what_a_receiver_left_that_has_ended_or_was_killed(
    logs_url: str, tmp_path: Path
) -> None:
    async with Receiver(logs_url, tmp_path, name="central:7") as owner:
        await owner.send(b"1\n")
        await owner.until(lambda: owner.has(0, b"1\n")() and owner.has(1, b"1\n")())
        owner.running.cancel()  # it releases nothing
        await asyncio.wait({owner.running})
        await owner.connection.close()
    once = Receiver(logs_url, tmp_path, once=True, name="once:8")
    await once.send(b"2\n")
    async with once:
        await asyncio.wait_for(asyncio.shield(once.running), 30)

    assert once.has(0, b"1\n2\n")()
    assert once.has(1, b"1\n2\n")()
