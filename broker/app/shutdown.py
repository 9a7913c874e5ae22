"""How a program is told to end, and how long that may take: in order at the first signal, at once at the second.

Whatever hangs beyond that (a read from a dead network file system) is left: what is not acknowledged is done again.
"""

import asyncio
import atexit
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

__all__ = ["BrokenOff", "Shutdown"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class BrokenOff(BaseException):
    """The program was told to end while it did what blocks its loop."""


class Shutdown:
    """The shutdown of a program; `asked` is set at the first signal, `limit` bounds the work from then on."""

    def __init__(self, code: int, last_resort: float = 9.0) -> None:
        """Exit with `code` where only the last resort helps, that many seconds after the first signal."""
        self.asked = asyncio.Event()
        self.limit = asyncio.Timeout(None)
        self._code = code
        self._last_resort = last_resort

    def listen(self, told: Callable[[], float]) -> None:
        """Take over the signals; `told` is called at the first one, and returns how many seconds the work may have."""
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._end, told)

    def _end(self, told: Callable[[], float]) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)  # the second one needs no help of ours
        self._bound()
        self.asked.set()
        seconds = told()
        with suppress(RuntimeError):  # the work is done already
            self.limit.reschedule(loop.time() + seconds)

    @contextmanager
    def breaking_off(self) -> Iterator[None]:
        """Do something that blocks the loop: the first signal raises `BrokenOff` there, and is heard by the loop as well."""
        before = {number: signal.getsignal(number) for number in _SIGNALS}

        def break_off(_: int, __: FrameType | None) -> None:
            _restore(before)
            self._bound()
            raise BrokenOff

        for number in _SIGNALS:
            signal.signal(number, break_off)
        try:
            yield
        finally:
            _restore(before)

    def _bound(self) -> None:
        if signal.getitimer(signal.ITIMER_REAL)[0]:
            return  # bounded since the signal came
        signal.signal(signal.SIGALRM, lambda *_: os._exit(self._code))
        signal.setitimer(signal.ITIMER_REAL, self._last_resort)
        # once threads are waited for nothing hangs any more, and the interpreter takes the handler away, not the alarm
        atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)


def _restore(handlers: "dict[signal.Signals, signal._HANDLER]") -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
