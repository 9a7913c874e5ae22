"""A running program towards the world outside: its end by a signal, systemd (sd_notify(3)), and settings read again.

The first SIGTERM or SIGINT asks for the end in order, the second ends at once. Whatever hangs beyond the time that the end
may take (a read from a dead network file system) is left: what is not acknowledged is done again.
"""

import asyncio
import atexit
import logging
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any, Generic, Protocol, TypeVar

from nats_logship.app.configuration import ProgramSettings, name_of
from nats_logship.app.exits import Exit, OperatorError, pick_error
from nats_logship.app.text import printable

_PATIENCE = 1.0  # seconds for a service manager that is busy
_LONGEST_STATUS = 200
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SOON = 0.1  # seconds between looks at whether it is ready
_STARTED = 10.0  # after which a start that takes long is one that goes well
_STATUS_EVERY = 5.0
Settings = TypeVar("Settings")
Model = TypeVar("Model", bound=ProgramSettings)
logger = logging.getLogger("service")


def block_signals() -> None:
    """Have signals wait until `Service.run` hears them: one that is raised in an import may be lost, and leave a lock held for ever."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_SIGNALS, signal.SIGHUP})


class Notifier:
    """The service manager's socket, a path or a name in the abstract namespace after `@`; without one nothing is said.

    `watchdog` is its patience in seconds, None for none.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Take the service manager's variables out of the environment: they are for no child of ours."""
        address = environment.pop("NOTIFY_SOCKET", "")
        patience = environment.pop("WATCHDOG_USEC", "")
        is_watched = environment.pop("WATCHDOG_PID", "") in {"", str(os.getpid())}
        self.watchdog = int(patience) / 1e6 if patience.isdigit() and is_watched else None
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._status = ""

    @property
    def is_heard(self) -> bool:
        """Whether there is a service manager that we can speak to."""
        return self._address.startswith(("/", "\0"))

    def send(self, *assignments: str) -> None:
        """Tell the service manager, such as `READY=1`."""
        if not self.is_heard:
            return
        with (
            suppress(OSError),  # full, or not there just now
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        ):
            manager.settimeout(_PATIENCE)
            text = "\n".join(assignments).encode(
                "utf-8", "backslashreplace"
            )  # any path may be in it
            manager.sendto(text, self._address)

    def status(self, text: str) -> None:
        """Say in one line how it goes, unless that was the last thing said."""
        if text != self._status:
            self._status = text
            self.send(f"STATUS={printable(text)[:_LONGEST_STATUS]}")


class Supervised(Protocol):
    """What is spoken for: a running program, looked at."""

    @property
    def is_ready(self) -> bool:
        """Whether it works, or waits for a broker: that is this program's work, and no reason to end it."""

    def status(self) -> str:
        """Return one line on how it goes."""

    def is_moving(self, most: float) -> bool:
        """Whether nothing has been stuck for more than `most` seconds."""


class Service(Generic[Settings]):
    """One program that runs until it is told to end: `asked` is set then, by the first signal."""

    def __init__(
        self,
        view: Supervised,
        change: Callable[[Settings], Awaitable[None]],
        end: Callable[[], float],
        code: int = Exit.DONE,
        last_resort: float = 9.0,
    ) -> None:
        """Take what is spoken for, what makes new settings count, and what `end` calls and how many seconds that gives the work.

        The program exits with `code` where only the last resort helps, that many seconds after the first signal.
        """
        self.stop_requested = asyncio.Event()
        self._view = view
        self._change = change
        self._end = end
        self._code = code
        self._last_resort = last_resort
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
        """Do the work, and speak for it meanwhile; return whether it came to its end in the time that it had.

        `background` is entered before and left after it. `reread` reads the settings again, in a thread. Raises what `work`
        and `background` raise.
        """
        self._notifier, loop = notifier, asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._ask)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_SIGNALS, signal.SIGHUP})
        try:
            async with self._limit, AsyncExitStack() as stack, asyncio.TaskGroup() as group:
                for context in background:
                    await stack.enter_async_context(context)
                tasks = [group.create_task(one) for one in (self._speak(), self._reload(reread))]
                await work
                for task in tasks:
                    task.cancel()
        except TimeoutError:
            return False
        except BaseExceptionGroup as errors:
            raise pick_error(errors) from None
        finally:
            work.close()  # where it could not even begin
            # no reason to end in disorder
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        return True

    def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)  # the second one needs no help of ours
        signal.signal(signal.SIGALRM, lambda *_: os._exit(self._code))
        signal.setitimer(signal.ITIMER_REAL, self._last_resort)
        # once threads are waited for nothing hangs any more, and the interpreter takes the handler away, not the alarm
        atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)
        self.stop_requested.set()
        self._notifier.send("STOPPING=1")
        seconds = self._end()
        with suppress(RuntimeError):  # the work is done already
            self._limit.reschedule(loop.time() + seconds)

    async def _reload(self, reread: Callable[[], Settings]) -> None:
        while True:
            await self._hung_up.wait()
            self._hung_up.clear()
            self._notifier.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
            try:
                await self._change(await asyncio.to_thread(reread))
            except OperatorError as error:
                logger.error("reload failed, keeping current settings: %s", error)  # noqa: TRY400 - a person must mend it
            self._notifier.send("READY=1")

    async def _speak(self) -> None:
        if not self._notifier.is_heard:
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

    def _feed(self, watchdog: float | None) -> None:
        if watchdog and self._view.is_moving(watchdog):
            self._notifier.send("WATCHDOG=1")


def merge_reloaded(old: Model, new: Model, at_once: Collection[str]) -> tuple[Model, str]:
    """Return the settings that count now that `new` was read again, and a line on what changed and what waits for a restart.

    A running program can change those `at_once`.
    """
    differing = [f for f in type(old).model_fields if getattr(old, f) != getattr(new, f)]
    changed = [field for field in differing if field in at_once]
    waiting = [name_of(field) for field in differing if field not in at_once]
    done = f"changed: {', '.join(map(name_of, changed))}" if changed else "nothing to change"
    settings = old.model_copy(update={field: getattr(new, field) for field in changed})
    return settings, f"{done}; needs a restart: {', '.join(waiting)}" if waiting else done
