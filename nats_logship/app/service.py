"""A running program under systemd: signals, sd_notify(3), the watchdog, and reloads of settings.

The first SIGTERM or SIGINT asks for the end in order, the second one ends the program at once. Work
that does not end in time, such as a read from a dead network file system, is abandoned: everything
that is not acknowledged is repeated at the next start.
"""

import asyncio
import atexit
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any, Generic, Protocol, TypeVar

from nats_logship.app.configuration import ProgramSettings, name_of
from nats_logship.app.exits import Exit, OperatorError, pick_error
from nats_logship.app.progress import TERMINAL, Estimate
from nats_logship.app.signals import ENDING, HANDLED
from nats_logship.app.text import printable

_PATIENCE = 1.0  # seconds for a busy service manager
_MAX_STATUS = 200  # characters
_SOON = 0.1  # seconds between checks whether the program is ready
_STARTED = 10.0  # seconds after which a slow start counts as a good one
_STATUS_EVERY = 5.0  # seconds
_PROGRESS_EVERY = 1.0  # seconds; shorter work is not shown on a terminal
Settings = TypeVar("Settings")
Model = TypeVar("Model", bound=ProgramSettings)
logger = logging.getLogger("service")


class Notifier:
    """The service manager's socket, by its path or, after `@`, by its abstract name; or none.

    `watchdog` is its patience in seconds, None for none.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Remove the variables from the environment, so that no child uses them."""
        address = environment.pop("NOTIFY_SOCKET", "")
        patience = environment.pop("WATCHDOG_USEC", "")
        is_watched = environment.pop("WATCHDOG_PID", "") in {"", str(os.getpid())}
        self.watchdog = int(patience) / 1e6 if patience.isdigit() and is_watched else None
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._status = ""

    @property
    def is_connected(self) -> bool:
        """Whether there is a service manager."""
        return self._address.startswith(("/", "\0"))

    def send(self, *assignments: str) -> None:
        """Send assignments such as `READY=1`."""
        if not self.is_connected:
            return
        # a path in a status may be no UTF-8
        text = "\n".join(assignments).encode("utf-8", "backslashreplace")
        with (
            suppress(OSError),  # its queue is full, or it is restarting
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        ):
            manager.settimeout(_PATIENCE)
            manager.sendto(text, self._address)

    def status(self, text: str) -> None:
        """Send a status of one line, unless it is the same as before."""
        if text != self._status:
            self._status = text
            self.send(f"STATUS={printable(text)[:_MAX_STATUS]}")


class Supervised(Protocol):
    """The state of a running program."""

    @property
    def is_ready(self) -> bool:
        """Whether the program works, or waits for a broker."""

    def status(self) -> str:
        """Return the status in one line."""

    def is_moving(self, most: float) -> bool:
        """Whether nothing has been stuck for more than `most` seconds."""

    def left(self) -> int:
        """Return how much work waits, such as bytes or messages; 0 for none or if unknown."""


class Service(Generic[Settings]):
    """One program that runs until a signal; the first signal sets `stop_requested`."""

    def __init__(
        self,
        view: Supervised,
        change: Callable[[Settings], Awaitable[None]],
        end: Callable[[], float],
        code: int = Exit.DONE,
        last_resort: float = 9.0,
    ) -> None:
        """Take callbacks: `change` applies new settings, `end` returns the seconds left for work.

        `last_resort` seconds after the first signal the program exits with `code` in any case.
        """
        self.stop_requested = asyncio.Event()
        self._view, self._change, self._end = view, change, end
        self._code, self._last_resort = code, last_resort
        self._notifier = Notifier({})
        self._limit = asyncio.Timeout(None)
        self._hung_up = asyncio.Event()

    async def run(
        self,
        notifier: Notifier,
        reread: Callable[[], Settings],
        work: Coroutine[Any, Any, None],
        background: Iterable[AbstractAsyncContextManager[object]] = (),
    ) -> bool:
        """Do the work within `background`; return whether it ended in time after a signal.

        `reread` reads the settings again, in a thread. Raises the errors of `work`, `background`.
        """
        self._notifier, loop = notifier, asyncio.get_running_loop()
        for number in ENDING:
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        try:
            async with self._limit, AsyncExitStack() as stack, asyncio.TaskGroup() as group:
                for context in background:
                    await stack.enter_async_context(context)
                beside = self._notify(), self._reload(reread), self._show_progress()
                tasks = [group.create_task(one) for one in beside]
                await work
                for task in tasks:
                    task.cancel()
        except TimeoutError:
            return False
        except BaseExceptionGroup as errors:
            raise pick_error(errors) from None
        finally:
            work.close()  # if it has not begun
            # SIGHUP must not end the program now
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        return True

    def _stop(self) -> None:
        loop = asyncio.get_running_loop()
        for number in ENDING:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, lambda *_: os._exit(self._code))
        signal.setitimer(signal.ITIMER_REAL, self._last_resort)
        # at its end the interpreter removes the handler, not the alarm
        atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)
        self.stop_requested.set()
        self._notifier.send("STOPPING=1")
        seconds = self._end()
        with suppress(RuntimeError):  # the work has ended
            self._limit.reschedule(loop.time() + seconds)

    async def _reload(self, reread: Callable[[], Settings]) -> None:
        while True:
            await self._hung_up.wait()
            self._hung_up.clear()
            self._notifier.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
            try:
                await self._change(await asyncio.to_thread(reread))
            except OperatorError as error:
                # no defect, so without a traceback
                logger.error("reload failed, keeping current settings: %s", error)  # noqa: TRY400
            self._notifier.send("READY=1")

    async def _notify(self) -> None:
        if not self._notifier.is_connected:
            return
        clock = asyncio.get_running_loop().time
        until, watchdog = clock() + _STARTED, self._notifier.watchdog
        while not self._view.is_ready and clock() < until:
            self._feed(watchdog)
            await asyncio.sleep(_SOON)
        self._notifier.status(self._view.status())
        self._notifier.send("READY=1")
        while True:
            self._notifier.status(self._view.status())
            self._feed(watchdog)
            await asyncio.sleep(min(_STATUS_EVERY, (watchdog or _STATUS_EVERY) / 2))

    async def _show_progress(self) -> None:
        """Show the status below the log of a terminal while work waits."""
        clock, estimate = asyncio.get_running_loop().time, Estimate()
        waits = False
        try:
            while sys.stderr.isatty():
                left = self._view.left()
                rest = estimate.note(clock(), left)
                TERMINAL.show(f"{self._view.status()}{rest}" if left and waits else "")
                waits = left > 0
                await asyncio.sleep(_PROGRESS_EVERY)
        finally:
            TERMINAL.show("")

    def _feed(self, watchdog: float | None) -> None:
        if watchdog and self._view.is_moving(watchdog):
            self._notifier.send("WATCHDOG=1")


def merge_reloaded(old: Model, new: Model, at_once: Collection[str]) -> tuple[Model, str]:
    """Return the settings after a reload, and a line on what changed and what needs a restart.

    Only the settings `at_once` change while the program runs.
    """
    differing = [f for f in type(old).model_fields if getattr(old, f) != getattr(new, f)]
    changed = [field for field in differing if field in at_once]
    waiting = [name_of(field) for field in differing if field not in at_once]
    done = f"changed: {', '.join(map(name_of, changed))}" if changed else "nothing to change"
    settings = old.model_copy(update={field: getattr(new, field) for field in changed})
    return settings, f"{done}; needs a restart: {', '.join(waiting)}" if waiting else done
