import asyncio

import pytest

from receiver.driver.stopping import run_unless_stopped


async def test_a_call_has_ended_after_a_stop() -> None:
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


async def test_a_call_has_ended_after_its_caller_was_cancelled() -> None:
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


async def test_the_result_or_error_of_a_stopped_call_is_not_lost() -> None:
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
