"""A message at which our own code fails by an error that nobody foresaw: it is found and set aside.

The batch that failed is taken back and written again with fewer messages, until only its first one
can be to blame. Errors of the machine or of the broker (OSError, MemoryError, `ConnectionLost`) are
no message's.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from receiver.storage.database import ROW_ERRORS

UNEXPECTED = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError),
    *(TypeError, ValueError, *ROW_ERRORS),
)
_LONGEST = 300  # characters of a reason


@dataclass(frozen=True, slots=True)
class Suspicion:
    """How the next batch is written: at most `most` messages of it, 0 is no limit.

    With a `reason` its first message is set aside, for that reason.
    """

    most: int = 0
    reason: str = ""


class BatchFailed(Exception):
    """A batch met an error that nobody foresaw; the next attempt goes by the `suspicion`."""

    def __init__(self, innocent: int, error: BaseException) -> None:
        """Have the first `innocent` messages tried alone; 0 where the first one is to blame."""
        words = f"{type(error).__name__}: {error}"[:_LONGEST]
        self.suspicion = Suspicion(innocent) if innocent else Suspicion(1, words)
        super().__init__(words)


@contextmanager
def blaming(innocent: Callable[[], int]) -> Iterator[None]:
    """Raise `BatchFailed` for an error inside that nobody foresaw.

    `innocent` says then how many messages can be tried alone.
    """
    try:
        yield
    except UNEXPECTED as error:
        raise BatchFailed(innocent(), error) from error
