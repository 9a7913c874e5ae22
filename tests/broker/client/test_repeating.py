import asyncio

import pytest

from broker.client import repeating as room
from broker.client.answer import ConnectionLost, Rejected
from broker.client.repeating import may_be_repeated, repeated


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_AGAIN", 0.02)


async def test_a_question_is_asked_again_until_somebody_is_there_to_answer_it() -> None:
    asked = 0

    async def ask(patience: float) -> str:
        nonlocal asked
        asked += 1
        if asked < 3:  # nobody leads yet, so nobody answers
            await asyncio.sleep(patience)
        return f"answer to question {asked}"

    assert await repeated(ask, 20.0) == "answer to question 3"


async def test_a_late_answer_to_the_first_question_counts() -> None:
    async def ask(patience: float) -> str:
        await asyncio.sleep(0.1)
        return "late"

    assert await repeated(ask, 20.0) == "late"


async def test_a_refusal_is_an_answer_and_an_end_of_patience_is_told() -> None:
    async def refuse(patience: float) -> str:
        raise Rejected(404, 10059, "stream not found")

    async def say_nothing(patience: float) -> str:
        await asyncio.sleep(patience)
        raise ConnectionLost("no answer")

    with pytest.raises(Rejected):
        await repeated(refuse, 20.0)
    with pytest.raises(ConnectionLost):
        await repeated(say_nothing, 0.1)


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("STREAM.INFO.LOGS", True),
        ("CONSUMER.INFO.LOGS.receiver-p0", True),
        ("CONSUMER.CREATE.LOGS.wake-p0.logs.p0.>", True),
        ("CONSUMER.DELETE.LOGS.wake-p0", False),
        ("CONSUMER.RESET.LOGS.receiver-p0", False),
        ("STREAM.PURGE.LOGS", False),
        ("STREAM.UPDATE.LOGS", False),
    ],
)
def test_only_what_does_no_more_the_second_time_is_asked_twice(name: str, may: bool) -> None:
    assert may_be_repeated(name) is may
