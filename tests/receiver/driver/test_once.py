"""A receiver with --once beside another receiver: it ends, or takes over if asked."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nats_logship.app.exits import Exit, OperatorError
from nats_logship.wire.streams import StreamLayout
from receiver.driver.preflight import require_unused
from tests.receiver.threaded import Receiver

pytestmark = pytest.mark.nats


@pytest.fixture
async def owner(logs_url: str, tmp_path: Path) -> AsyncIterator[Receiver]:
    """Return a running receiver, which has received a line of each partition."""
    async with Receiver(logs_url, tmp_path, name="central:7") as owner:
        await owner.send(b"1\n")
        await owner.until(lambda: has_both(owner, b"1\n"))
        yield owner


def has_both(receiver: Receiver, lines: bytes) -> bool:
    return receiver.has(0, lines)() and receiver.has(1, lines)()


async def test_once_takes_nothing_from_a_running_receiver(
    owner: Receiver, logs_url: str, tmp_path: Path
) -> None:
    once = Receiver(logs_url, tmp_path / "once", once=True)
    reason = r"partition 0 is received by central:7.*--take-over"
    with pytest.raises(OperatorError, match=reason) as raised:
        await require_unused(once.settings, once.connection, StreamLayout(2), range(2))
    assert raised.value.code is Exit.FAILED
    async with once:
        with pytest.raises(OperatorError, match=r"received by central:7.*--take-over"):
            await once.ends()

    await owner.send(b"2\n")
    await owner.until(lambda: has_both(owner, b"1\n2\n"))


async def test_once_takes_over_if_asked_and_ends_the_other(
    owner: Receiver, logs_url: str, tmp_path: Path
) -> None:
    once = Receiver(logs_url, tmp_path, once=True, take_over=True, name="once:8")
    await require_unused(once.settings, once.connection, StreamLayout(2), range(2))
    await once.send(b"2\n")
    async with once:
        await once.ends()
    with pytest.raises(OperatorError, match="once:8"):
        await owner.ends()

    assert has_both(owner, b"1\n2\n")


async def test_once_receives_what_a_killed_one_left(
    owner: Receiver, logs_url: str, tmp_path: Path
) -> None:
    owner.running.cancel()  # it releases nothing
    await asyncio.wait({owner.running})
    await owner.connection.close()
    once = Receiver(logs_url, tmp_path, once=True, name="once:8")
    await once.send(b"2\n")
    async with once:
        await once.ends()

    assert has_both(once, b"1\n2\n")
