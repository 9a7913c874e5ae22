"""Shows how far a long piece of work is: a bar on a terminal, which is gone afterwards, now and then a line in a log."""

import logging
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from broker.app.durations import format_duration, parse_duration

__all__ = ["Progress"]

_WIDTH = 30
_LOGGED_EVERY = 10.0  # seconds
_TOLD_FROM = 2.0  # seconds; no rate is known before

logger = logging.getLogger(__name__)


class Progress:
    """Shows a part that grows."""

    def __init__(
        self, stream: TextIO = sys.stderr, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin now; `clock` is in seconds."""
        self._stream = stream
        self._clock = clock
        self._began = self._told = clock()
        self._is_terminal = stream.isatty()

    def show(self, part: float) -> None:
        """Say that `part` is done, from 0 to 1."""
        now = self._clock()
        if self._is_terminal:
            full = int(part * _WIDTH)
            bar = f"[{'#' * full}{'.' * (_WIDTH - full)}] {_words(part, now - self._began)}"
            self._stream.write(f"\r\x1b[K{bar}")
            self._stream.flush()
        elif now - self._told >= _LOGGED_EVERY:
            self._told = now
            logger.info("%s", _words(part, now - self._began))

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def _words(part: float, elapsed: float) -> str:
    if not part or elapsed < _TOLD_FROM:
        return f"{part:.0%}"
    left = parse_duration(round(elapsed / part * (1 - part)))
    return f"{part:.0%}, {format_duration(left)} to go"
