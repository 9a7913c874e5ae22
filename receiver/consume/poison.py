"""Poison messages: messages at which our own code fails with an unexpected error.

A batch that failed so is undone and written again with fewer messages, until only its first
message can be the cause. That message goes into quarantine. Errors of the machine or of the broker
(OSError, MemoryError, `ConnectionLost`) are never blamed on a message.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from receiver.storage.database import ROW_ERRORS

UNEXPECTED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    *ROW_ERRORS,
)
_LONGEST = 300  # characters of a reason


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How the next batch is written: with at most `most` messages, 0 for no limit.

    With a `poison` the first message goes into quarantine, for that reason.
    """

    most: int = 0
    poison: str = ""


class BatchFailed(Exception):
    """A batch met an unexpected error; the next attempt follows the `plan`."""

    def __init__(self, harmless: int, error: BaseException) -> None:
        """Plan to write the first `harmless` messages alone; 0: the first message is the poison."""
        reason = f"{type(error).__name__}: {error}"[:_LONGEST]
        self.plan = BatchPlan(harmless) if harmless else BatchPlan(1, reason)
        super().__init__(reason)


@contextmanager
def blame_messages(count_harmless: Callable[[], int]) -> Iterator[None]:
    """Raise `BatchFailed` for an unexpected error inside.

    `count_harmless` then returns how many of the first messages can be tried without the others.
    """
    try:
        yield
    except UNEXPECTED as error:
        raise BatchFailed(count_harmless(), error) from error
