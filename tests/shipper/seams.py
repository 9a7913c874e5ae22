"""Runs file actions between the system calls of a scan or a read: every race with a writer.

Fault injection, not a mock: each call does what it always does. Only one scan or read may run.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

CALLS = ("scandir", "lstat", "stat", "open", "fstat", "pread", "preadv")
"""The system calls by which a follower sees files."""


@contextmanager
def amid(actions: Sequence[tuple[int, Callable[[], None]]]) -> Iterator[None]:
    """Run each action before the call of its number, counted from 0; at the end those left.

    Actions run in the given order: one with a smaller number than its predecessor runs with that.
    """
    seams = _Seams(actions)
    calls = {name: getattr(os, name) for name in CALLS}
    try:
        for name, call in calls.items():
            setattr(os, name, seams.before(call))
        yield
    finally:
        for name, call in calls.items():
            setattr(os, name, call)
    seams.act(math.inf)


class _Seams:
    def __init__(self, actions: Sequence[tuple[int, Callable[[], None]]]) -> None:
        self._left = list(actions)
        self._count = 0
        self._acting = False

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def seamed(*args: Any, **options: Any) -> Any:
            if not self._acting:
                self.act(self._count)
                self._count += 1
            return call(*args, **options)

        return seamed

    def act(self, until: float) -> None:
        self._acting = True
        try:
            while self._left and self._left[0][0] <= until:
                self._left.pop(0)[1]()
        finally:
            self._acting = False
