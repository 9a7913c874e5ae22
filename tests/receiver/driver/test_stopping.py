import asyncio

import pytest

from receiver.driver.stopping import run_unless_stopped


async def test_a_call_has_ended_when_it_was_given_up_for_a_stop() -> None:
    stop, ended = asyncio.Event(), list[str]()

    async def call() -> str:
        try:
            stop.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            ended.append("call")
        return "done"

    assert await run_unless_stopped(stop, call()) is None
    assert ended == ["call"]


async def test_a_call_has_ended_when_its_caller_was_cancelled() -> None:
    begun, ended = asyncio.Event(), list[str]()

    async def call() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("call")

    waiting = asyncio.ensure_future(run_unless_stopped(asyncio.Event(), call()))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert ended == ["call"]


async def test_what_a_call_returns_or_raises_while_it_is_given_up_is_not_lost() -> None:
    stop = asyncio.Event()

    async def call(error: Exception | None) -> str:
        stop.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if error:
                raise error from None
        return "done"

    assert await run_unless_stopped(stop, call(None)) == "done"
    with pytest.raises(ValueError, match="lost"):
        await run_unless_stopped(stop, call(ValueError("lost")))
