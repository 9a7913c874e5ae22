"""The last line of a terminal, which says how far long work is: on standard error.

It is shown while we are in the foreground: a program that a shell runs behind its prompt must not
write over what a person types.
"""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from nats_logship.app.text import printable
from nats_logship.app.units import format_duration

_EVERY = 0.25  # seconds between two texts
_MEMORY = 40  # steps from which the time that is left is estimated
_PATIENCE = 1.0  # seconds; shorter work shows nothing
_CLEAR = "\r\x1b[K"

Advance = Callable[[int], None]
"""Moves a line of progress, in the unit of its size."""


class _Terminal:
    """Standard error, if that is a terminal; `text` is its last line, empty for none."""

    def __init__(self) -> None:
        self._text = ""

    def show(self, text: str) -> None:
        """Write a text over the last line; an empty one only removes it."""
        if text == self._text or not _is_foreground():
            return
        try:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
            shown = printable(text)[: max(0, columns - 1)] if columns else printable(text)
            sys.stderr.write(f"{_CLEAR}{shown}")
            sys.stderr.flush()
        except OSError:  # the terminal is gone
            return
        self._text = text

    @contextmanager
    def above(self) -> Iterator[None]:
        """Remove the last line while something is written above it."""
        text = self._text
        self.show("")
        yield
        self.show(text)


TERMINAL = _Terminal()


def _is_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):  # no terminal, or closed
        return False


@dataclass(slots=True)
class Estimate:
    """Estimates how long work takes, from how much was left at several times."""

    _steps: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_MEMORY))

    def note(self, now: float, left: int) -> str:
        """Return `, 1m30s left`, or an empty text while that is unknown; `now` in seconds."""
        if self._steps and left > self._steps[-1][1]:
            self._steps.clear()
        self._steps.append((now, left))
        began, before = self._steps[0]
        if now - began < _PATIENCE or left >= before:
            return ""
        seconds = max(1, round(left * (now - began) / (before - left)))
        return f", {format_duration(timedelta(seconds=seconds))} left"


@contextmanager
def progress(label: str, size: int) -> Iterator[Advance]:
    """Show how much of a size is done, if standard error is a terminal; yield its `Advance`."""
    began = shown_at = time.monotonic()
    done, estimate = 0, Estimate()

    def advance(more: int) -> None:
        nonlocal done, shown_at
        done += more
        now = time.monotonic()
        if now - shown_at >= _EVERY and size:
            shown_at, left = now, estimate.note(now, max(0, size - done))
            if now - began >= _PATIENCE:
                TERMINAL.show(f"{label}: {min(100, done * 100 // size)} %{left}")

    try:
        yield advance
    finally:
        TERMINAL.show("")
