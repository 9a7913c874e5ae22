"""A running program towards the world outside: systemd (sd_notify(3), sd_watchdog_enabled(3)), and settings read again.

Takes no part in the work: it speaks for a view of it, and hands new settings in. Never waits for the service manager and
never fails by it: what that cannot take now is sent the next time something is said. Without one nothing is said.
"""

import asyncio
import logging
import os
import signal
import socket
import time
from collections import deque
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    MutableMapping,
)
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from broker.app.configuration import ProgramSettings, name_of
from broker.app.exits import OperatorError, leading
from broker.app.untrusted import printable

__all__ = ["Notifier", "Reload", "Supervised", "Supervisor", "differences", "notifier_from"]

_MOST_UNSENT = 32
_LONGEST_STATUS = 200
_HANG_UP = {signal.SIGHUP}
_SOON = 0.1  # seconds between looks at whether it is ready
_STARTED = 10.0  # after which a start that takes long is one that goes well
_STATUS_EVERY = 5.0
Settings = TypeVar("Settings")
Model = TypeVar("Model", bound=ProgramSettings)
logger = logging.getLogger(__name__)


class Notifier:
    """The service manager's socket; `address` is a path, or a name in the abstract namespace after `@` (no vsock)."""

    def __init__(self, address: str = "", watchdog: float | None = None) -> None:
        """Say nothing yet; without an address nothing is ever said. `watchdog` is its patience in seconds."""
        self.watchdog = watchdog
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        self._unsent: deque[bytes] = deque(maxlen=_MOST_UNSENT)
        self._status = ""

    @property
    def is_heard(self) -> bool:
        """Whether there is a service manager that we can speak to."""
        return self._address.startswith(("/", "\0"))

    def ready(self) -> None:
        """Say that the start, or a reload, is done."""
        self._send("READY=1")

    def reloading(self, monotonic: int) -> None:
        """Say that settings are being read again; `monotonic` is CLOCK_MONOTONIC in nanoseconds."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={monotonic // 1000}")

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """Say in one line how it goes, unless that was the last thing said."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={printable(text)[:_LONGEST_STATUS]}")

    def alive(self) -> None:
        """Keep the watchdog quiet."""
        if self.watchdog is not None:
            self._send("WATCHDOG=1")

    @contextmanager
    def excused(self, seconds: float) -> Iterator[None]:
        """Have the watchdog wait so long meanwhile, if it would not: for what blocks, and ends by itself."""
        before = self.watchdog
        if before is None or before >= seconds:
            yield
            return
        self._send(f"WATCHDOG_USEC={round(seconds * 1_000_000)}", "WATCHDOG=1")
        try:
            yield
        finally:
            self._send(f"WATCHDOG_USEC={round(before * 1_000_000)}", "WATCHDOG=1")

    def close(self) -> None:
        """Let go of the socket."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _send(self, *assignments: str) -> None:
        if not self.is_heard:
            return
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._unsent.append("\n".join(assignments).encode())
        with suppress(OSError):  # full, or not there just now
            while self._unsent:
                self._socket.sendto(self._unsent[0], self._address)
                self._unsent.popleft()


def notifier_from(environment: MutableMapping[str, str]) -> Notifier:
    """Return the notifier that the environment asks for, and take that out of it: it is for no child of ours.

    A watchdog is for the process that WATCHDOG_PID names, ours if it names none.
    """
    address = environment.pop("NOTIFY_SOCKET", "")
    microseconds = environment.pop("WATCHDOG_USEC", "")
    pid = environment.pop("WATCHDOG_PID", "")
    is_watched = microseconds.isdigit() and int(microseconds) > 0 and pid in {"", str(os.getpid())}
    return Notifier(address, int(microseconds) / 1_000_000 if is_watched else None)


class Supervised(Protocol):
    """What is spoken for: a running program, looked at."""

    @property
    def is_ready(self) -> bool:
        """Whether it works, or waits for a broker: that is this program's work, and no reason to end it."""

    def status(self) -> str:
        """Return one line on how it goes."""

    def is_moving(self, most: float) -> bool:
        """Whether nothing has been stuck for more than `most` seconds."""


class Supervisor(Generic[Settings]):
    """Speaks for one program to its service manager, and has it read its settings again at SIGHUP."""

    def __init__(
        self,
        view: Supervised,
        notifier: Notifier,
        reread: Callable[[], Settings],
        change: Callable[[Settings], Awaitable[None]],
    ) -> None:
        """Remember whom to tell and whom to ask.

        `reread` reads the settings again, in a thread, and `change` makes them count; both raise `OperatorError` kinds
        for what will not do.
        """
        self._view = view
        self._notifier = notifier
        self._reread = reread
        self._change = change
        self._hung_up = asyncio.Event()

    async def attend(
        self,
        work: Coroutine[Any, Any, None],
        background: Iterable[AbstractAsyncContextManager[object]] = (),
    ) -> None:
        """Do the work, and speak for it until it is done; `background` is entered before and left after it.

        Raises what `work` and `background` raise.
        """
        try:
            async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
                for context in background:
                    await stack.enter_async_context(context)
                others = [
                    group.create_task(self._speak()),
                    group.create_task(self._read_again_when_asked()),
                ]
                await work
                for other in others:
                    other.cancel()
        except BaseExceptionGroup as errors:
            raise leading(errors) from None
        finally:
            work.close()  # where it could not even begin

    def hear_hang_ups(self) -> None:
        """Take over SIGHUP, also one that has waited until now."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hung_up.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANG_UP)

    def hear_no_hang_ups(self) -> None:
        """Let SIGHUP wait, for ever if need be: it is no reason to end in disorder."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANG_UP)

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._notifier.stopping()

    async def _read_again_when_asked(self) -> None:
        while True:
            await self._hung_up.wait()
            self._hung_up.clear()
            self._notifier.reloading(time.monotonic_ns())
            try:
                await self._change(await asyncio.to_thread(self._reread))
            except OperatorError as error:
                logger.error("reload failed, keeping current settings: %s", error)  # noqa: TRY400 - a person must mend it
            self._notifier.ready()

    async def _speak(self) -> None:
        if not self._notifier.is_heard:
            return
        clock = asyncio.get_running_loop().time
        until = clock() + _STARTED
        while not self._view.is_ready and clock() < until:
            self._feed_watchdog()
            await asyncio.sleep(_SOON)
        self._notifier.status(self._view.status())
        self._notifier.ready()
        due, pause = clock(), min(_STATUS_EVERY, (self._notifier.watchdog or _STATUS_EVERY) / 2)
        while True:
            if clock() >= due:
                due = clock() + _STATUS_EVERY
                self._notifier.status(self._view.status())
            self._feed_watchdog()
            await asyncio.sleep(pause)

    def _feed_watchdog(self) -> None:
        if self._notifier.watchdog and self._view.is_moving(self._notifier.watchdog):
            self._notifier.alive()


@dataclass(frozen=True, slots=True)
class Reload(Generic[Model]):
    """The settings that count from now on, the names of those that changed, and of those that wait for a restart."""

    settings: Model
    changed: tuple[str, ...]
    waiting: tuple[str, ...]

    def __str__(self) -> str:
        """Say it in a line."""
        done = f"changed: {', '.join(self.changed)}" if self.changed else "nothing to change"
        return f"{done}; needs a restart: {', '.join(self.waiting)}" if self.waiting else done


def differences(old: Model, new: Model, at_once: Collection[str]) -> Reload[Model]:
    """Return what to do about settings that were read again, of which a running program can change those `at_once`."""
    differing = [f for f in type(old).model_fields if getattr(old, f) != getattr(new, f)]
    changed = [field for field in differing if field in at_once]
    settings = old.model_copy(update={field: getattr(new, field) for field in changed})
    waiting = [field for field in differing if field not in at_once]
    return Reload(settings, tuple(map(name_of, changed)), tuple(map(name_of, waiting)))
