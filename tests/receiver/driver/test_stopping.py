"""A call that a stop ends has ended when its caller goes on, and its result is not lost."""

import asyncio

import pytest

from receiver.driver.stopping import run_unless_stopped


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["stop", "cancelled caller"])
async def test_a_call_has_ended_after_a_stop(*, is_cancelled: bool) -> None:
    stop, begun, ended = asyncio.Event(), asyncio.Event(), list[str]()

    async def call() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            ended.append("call")

    waiting = asyncio.ensure_future(run_unless_stopped(stop, call()))
    await begun.wait()
    waiting.cancel() if is_cancelled else stop.set()
    result = (await asyncio.gather(waiting, return_exceptions=True))[0]

    assert ended == ["call"]
    assert isinstance(result, asyncio.CancelledError) if is_cancelled else result is None


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
