"""A question that may be asked twice, asked again while nobody answers: whoever can may be there only by then."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

__all__ = ["may_be_repeated", "repeated"]

Answer = TypeVar("Answer")

_AGAIN = 0.5  # seconds
_REPEATABLE = re.compile(r"(STREAM|CONSUMER)\.INFO\.|CONSUMER\.CREATE\.")


def may_be_repeated(name: str) -> bool:
    """Whether a call of the JetStream API changes nothing, or nothing more when it is done again."""
    return _REPEATABLE.match(name) is not None


async def repeated(ask: Callable[..., Awaitable[Answer]], patience: float) -> Answer:
    """Ask, with a keyword `patience` of so many seconds, until the first answer, or refusal, to any of the questions.

    Raises what the first one raises whose patience is over.
    """
    asked: set[asyncio.Future[Any]] = set()
    try:
        while True:
            question: asyncio.Future[Answer] = asyncio.ensure_future(ask(patience=patience))
            question.add_done_callback(_look)
            asked.add(question)
            done, _ = await asyncio.wait(asked, timeout=_AGAIN, return_when=asyncio.FIRST_COMPLETED)
            for answered in done:
                answer: Answer = answered.result()
                return answer
    finally:
        for question in asked:
            question.cancel()


def _look(question: "asyncio.Future[Any]") -> None:
    """Look at how it ended: of two at once only one is told of, and asyncio complains of errors that nobody saw."""
    if not question.cancelled():
        question.exception()
