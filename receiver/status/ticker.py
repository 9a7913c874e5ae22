"""Reports progress while a receiver is behind: a bar on a terminal, a line now and then in a log."""

import asyncio
import logging
import shutil
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from typing import TextIO

from broker.app.durations import format_duration
from broker.app.sizes import format_size
from receiver.status.view import View

__all__ = ["Progress", "Ticker"]

_BAR_EVERY, _LINE_EVERY = 1.0, 10.0  # seconds
_LOOK_BACK = 15.0  # seconds; a task reports every five
_BEHIND = 10.0  # seconds of lag from which a receiver counts as catching up
_LEAST_SPAN = 1.0  # seconds between two samples that say something about a rate

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Sample:
    """All partitions together: messages waiting, messages and bytes received so far, the longest lag in seconds."""

    at: float
    pending: int
    messages: int
    bytes: int
    lag: float


@dataclass(frozen=True, slots=True)
class Progress:
    """How a receiver catches up.

    `share` is how much of what there was and has come since is received, from 0 to 1; `eta` is in seconds, None when the
    receiver falls behind.
    """

    share: float
    bytes_rate: float
    left: int
    lag: float
    eta: float | None

    def sentence(self) -> str:
        """Return a line for a log."""
        rate, behind, ready = self._words()
        return (
            f"catching up: {self.share:.0%}, {self.left:,} messages left, {behind}, {rate}, {ready}"
        )

    def bar(self, width: int) -> str:
        """Return a line for a terminal of `width` columns."""
        words = "  ".join((f" {self.share:4.0%}", *self._words()))
        room = max(width - len(words) - 3, 0)
        filled = int(room * self.share)
        drawn = f"[{'#' * filled}{'.' * (room - filled)}]" if room >= 5 else ""
        return f"{drawn}{words}"[: max(width - 1, 0)]

    def _words(self) -> tuple[str, str, str]:
        ready = "falling behind" if self.eta is None else f"ready in {_age(self.eta)}"
        return f"{format_size(int(self.bytes_rate))}/s", f"{_age(self.lag)} behind", ready


def _progress(began: _Sample, before: _Sample, now: _Sample) -> Progress:
    span = max(now.at - before.at, _LEAST_SPAN)
    closing = (before.pending - now.pending) / span
    done = now.messages - began.messages
    return Progress(
        share=done / max(done + now.pending, 1),
        bytes_rate=(now.bytes - before.bytes) / span,
        left=now.pending,
        lag=now.lag,
        eta=now.pending / closing if closing > 0 else None,
    )


def _age(seconds: float) -> str:
    return format_duration(timedelta(seconds=round(seconds)))


class Ticker:
    """Reports the progress of one receiver."""

    def __init__(self, view: View, screen: TextIO | None = None) -> None:
        """Report nothing yet; `screen` is a terminal, None where there is only a log."""
        self._view = view
        self._screen = screen
        self._samples: deque[_Sample] = deque()
        self._began: _Sample | None = None

    async def run(self) -> None:
        """Report until cancelled."""
        try:
            while True:
                self.tick()
                await asyncio.sleep(_LINE_EVERY if self._screen is None else _BAR_EVERY)
        finally:
            self._wipe()

    def tick(self) -> None:
        """Look, and report if the receiver is behind or has just caught up."""
        now = self._sample()
        if not now.pending or now.lag < _BEHIND:
            self._end(now)
            return
        self._began = self._began or now
        while self._samples and now.at - self._samples[0].at > _LOOK_BACK:
            self._samples.popleft()
        if self._samples:
            self._write(_progress(self._began, self._samples[0], now))
        self._samples.append(now)

    def _sample(self) -> _Sample:
        report = self._view.look()
        counted = [one.counted for one in report.partitions]
        return _Sample(
            at=report.at,
            pending=sum(one.pending for one in counted),
            messages=sum(one.messages for one in counted),
            bytes=sum(one.bytes for one in counted),
            lag=max((one.lag_seconds for one in report.partitions), default=0.0),
        )

    def _write(self, progress: Progress) -> None:
        if self._screen is None:
            logger.info("%s", progress.sentence())
            return
        width = shutil.get_terminal_size().columns
        self._screen.write(f"\r{progress.bar(width).ljust(width - 1)}")
        self._screen.flush()

    def _end(self, now: _Sample) -> None:
        if self._began is not None:
            self._wipe()
            logger.info("caught up: %s messages", f"{now.messages - self._began.messages:,}")
        self._began = None
        self._samples.clear()

    def _wipe(self) -> None:
        if self._screen is not None and self._samples:
            self._screen.write("\r\x1b[K")
            self._screen.flush()
