"""Shows how far a long piece of work is: a bar on a terminal, which is gone afterwards, now and then a line in a log."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from types import TracebackType
from typing import TextIO

from broker.app.durations import format_duration
from broker.app.sizes import format_size
from receiver.status.view import ReceiverReport, View

__all__ = ["CatchingUp", "Progress"]

_WIDTH = 30
_DRAWN_EVERY, _LOGGED_EVERY = 1.0, 10.0  # seconds
_TOLD_FROM = 2.0  # seconds; no rate is known before
_BEHIND = 10.0  # seconds of lag from which a receiver counts as catching up

logger = logging.getLogger(__name__)


class Progress:
    """Shows a part that grows."""

    def __init__(
        self,
        stream: TextIO = sys.stderr,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin now; `clock` is in seconds."""
        self._stream = stream
        self._clock = clock
        self._began = self._logged = clock()
        self._is_terminal = stream.isatty()

    def show(self, part: float, words: str = "") -> None:
        """Say that `part` is done, from 0 to 1, and something more about it."""
        now = self._clock()
        said = ", ".join(
            filter(None, (f"{part:.0%} {words}".strip(), _left(part, now - self._began)))
        )
        if self._is_terminal:
            full = int(part * _WIDTH)
            self._stream.write(f"\r\x1b[K[{'#' * full}{'.' * (_WIDTH - full)}] {said}")
            self._stream.flush()
        elif now - self._logged >= _LOGGED_EVERY:
            self._logged = now
            logger.info("%s", said)

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


def _left(part: float, elapsed: float) -> str:
    if not part or elapsed < _TOLD_FROM:
        return ""
    return f"{_words(elapsed / part * (1 - part))} to go"


def _words(seconds: float) -> str:
    return format_duration(timedelta(seconds=round(seconds)))


class CatchingUp:
    """Shows how a receiver catches up that is behind."""

    def __init__(
        self,
        view: View,
        stream: TextIO = sys.stderr,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show nothing yet; `clock` is in seconds."""
        self._view = view
        self._stream = stream
        self._clock = clock
        self._shown = ExitStack()
        self._progress: Progress | None = None
        self._began = 0  # messages

    async def run(self) -> None:
        """Show it until cancelled."""
        with self._shown:
            while True:
                self.look()
                await asyncio.sleep(_DRAWN_EVERY if self._stream.isatty() else _LOGGED_EVERY)

    def look(self) -> None:
        """Show how far the receiver is if it is behind, or has just caught up."""
        report = self._view.look()
        counted = [one.counted for one in report.partitions]
        pending, messages = sum(c.pending for c in counted), sum(c.messages for c in counted)
        lag = max((one.lag_seconds for one in report.partitions), default=0.0)
        if pending and lag >= _BEHIND:
            if self._progress is None:
                self._progress = self._shown.enter_context(Progress(self._stream, self._clock))
                self._began = messages
            done = messages - self._began
            self._progress.show(done / (done + pending), _how(report, pending, lag))
        elif self._progress is not None:
            self._shown.close()
            self._progress = None
            logger.info("caught up: %s messages", f"{messages - self._began:,}")


def _how(report: ReceiverReport, pending: int, lag: float) -> str:
    rate = format_size(int(sum(one.rates[0] for one in report.partitions)))
    return f"caught up, {pending:,} messages left, {_words(lag)} behind, {rate}/s"
