"""What holds up a shipper is said once, and a moment in which nobody listens is nothing to say."""

import logging

import pytest

from broker.client.connection import ConnectionLost, Rejected
from shipper.publish.waiting import Waiting


async def test_nobody_listening_is_said_only_when_it_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiting = Waiting()

    with caplog.at_level(logging.INFO):
        await waiting.pause("nobody listens", "missing")
        waiting.over()
        quiet = list(caplog.messages)
        for _ in range(3):
            await waiting.pause("nobody listens", "missing")
        waiting.over()

    assert quiet == []
    assert caplog.messages == ["waiting: nobody listens", "resumed"]
    assert waiting.retries == {"missing": 4}


async def test_it_asks_until_there_is_an_answer_and_waits_for_nothing_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiting, answers = Waiting(), iter([ConnectionLost("cut"), Rejected(503, 10077, "full"), 7])

    async def ask() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with caplog.at_level(logging.INFO):
        assert await waiting.until_answered(ask) == 7

    assert caplog.messages[0] == "waiting: the broker did not answer: cut"
    assert "full" in caplog.messages[1]
    assert caplog.messages[2:] == ["resumed"]
    assert (waiting.reason, waiting.since) == ("", None)
