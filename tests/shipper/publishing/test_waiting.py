"""What holds up a shipper is said once, and a moment in which nobody listens is nothing to say."""

import logging

import pytest

from shipper.publishing.waiting import Cause, Waiting


async def test_nobody_listening_is_said_only_when_it_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiting = Waiting()

    with caplog.at_level(logging.INFO):
        await waiting.pause("nobody listens", Cause.MISSING)
        waiting.over()
        quiet = list(caplog.messages)
        for _ in range(3):
            await waiting.pause("nobody listens", Cause.MISSING)
        waiting.over()

    assert quiet == []
    assert caplog.messages == ["waiting: nobody listens", "going on"]
    assert waiting.retries == {Cause.MISSING: 4}


async def test_what_else_holds_it_up_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    waiting = Waiting()

    with caplog.at_level(logging.INFO):
        await waiting.pause("no acknowledgement")
        await waiting.pause("no acknowledgement")

    assert caplog.messages == ["waiting: no acknowledgement"]
    assert waiting.reason == "no acknowledgement"
